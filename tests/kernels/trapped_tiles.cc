// SPDX-License-Identifier: Apache-2.0
// The library's own kernels for AMX on a processor without it: their tile instructions raise
// SIGILL, whose handler does in software what they say. So the instructions themselves are tested:
// their encoding, operands and memory. Encodings: Intel SDM volume 2. Compiled for any processor,
// because the handler is installed before anything is skipped.
#include <signal.h>
#include <ucontext.h>

#include "tests/kernels/software_tiles.h"

namespace cohort {
namespace {

thread_local TileRegisters<SpecifiedSum> tiles;

// A general register of the interrupted code, by its number in instructions.
uint64_t general(const gregset_t& registers, int number) {
  constexpr int kAt[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                         REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return uint64_t(registers[kAt[number]]);
}

// An instruction of VEX with three bytes, opcode map 0F38 and 128 bits: all that tiles have.
struct Instruction {
  int prefix;  // 0 none, 1 66, 2 F3, 3 F2
  int opcode, mod, reg, rm, vvvv;
  int extra_index, extra_base;  // 8 or 0
  const uint8_t* rest;          // after the ModRM byte
};

bool decode(const uint8_t* at, Instruction& out) {
  if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || (at[2] & 0x84) != 0) return false;
  const int modrm = at[4];
  out = {at[2] & 3,
         at[3],
         modrm >> 6,
         (modrm >> 3 & 7) + (at[1] & 0x80 ? 0 : 8),
         modrm & 7,
         ~at[2] >> 3 & 15,
         at[1] & 0x40 ? 0 : 8,
         at[1] & 0x20 ? 0 : 8,
         at + 5};
  return true;
}

// The operand in memory; moves `rest` behind it. Without an index the stride is 0.
struct Address {
  uint64_t base;
  int64_t stride;
};

Address address(const gregset_t& registers, Instruction& in) {
  Address out{0, 0};
  int base = in.rm;
  if (in.rm == 4) {
    const int sib = *in.rest++, index = (sib >> 3 & 7) + in.extra_index;
    base = sib & 7;
    if (index != 4) out.stride = int64_t(general(registers, index)) << (sib >> 6);
  }
  int32_t far = 0;
  const bool no_base = in.mod == 0 && base == 5;
  if (in.mod == 2 || no_base) __builtin_memcpy(&far, in.rest, 4);
  const int64_t offset = in.mod == 1 ? int8_t(*in.rest) : far;
  in.rest += in.mod == 1 ? 1 : in.mod == 2 || no_base ? 4 : 0;
  if (!no_base)
    out.base = general(registers, base + in.extra_base);
  else if (in.rm == 5)
    out.base = uint64_t(in.rest);
  out.base += uint64_t(offset);
  return out;
}

// TILERELEASE and TILEZERO have no memory.
bool run_registers(const Instruction& in) {
  if (in.opcode == 0x49 && in.prefix == 0 && in.reg == 0 && in.rm == 0)
    tiles.release();
  else if (in.opcode == 0x49 && in.prefix == 3 && in.rm == 0)
    tiles.zero(in.reg);
  else if (in.opcode == 0x5c && in.prefix == 2)
    tiles.dot(in.reg, in.rm + in.extra_base, in.vvvv);
  else
    return false;
  return true;
}

bool run_memory(const gregset_t& registers, Instruction& in) {
  const bool sib = in.rm == 4;
  const Address at = address(registers, in);
  if (in.opcode == 0x49 && in.prefix == 0 && in.reg == 0)
    tiles.configure(reinterpret_cast<const uint8_t*>(at.base));
  else if (in.opcode == 0x4b && in.prefix == 3 && sib)
    tiles.load(in.reg, reinterpret_cast<const void*>(at.base), at.stride);
  else if (in.opcode == 0x4b && in.prefix == 2 && sib)
    tiles.store(in.reg, reinterpret_cast<void*>(at.base), at.stride);
  else
    return false;
  return true;
}

void handle(int, siginfo_t*, void* interrupted) {
  gregset_t& registers = static_cast<ucontext_t*>(interrupted)->uc_mcontext.gregs;
  Instruction in;
  if (decode(reinterpret_cast<const uint8_t*>(registers[REG_RIP]), in) &&
      (in.mod == 3 ? run_registers(in) : run_memory(registers, in)))
    registers[REG_RIP] = greg_t(in.rest);
  else
    signal(SIGILL, SIG_DFL);  // it happens again, and ends the process
}

struct Install {
  Install() {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &action, nullptr);
  }
} install;

}  // namespace

int64_t software_tile_products() { return __atomic_load_n(&tile_products, __ATOMIC_RELAXED); }

}  // namespace cohort
