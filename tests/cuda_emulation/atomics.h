// SPDX-License-Identifier: Apache-2.0
// Atomics of the device language, in global and shared memory. As on a GPU they are relaxed: they
// order nothing, and ThreadSanitizer sees them so. Only what CUDA overloads compiles, and no
// floats: a sum of floats by atomics has no fixed order.
#pragma once
#include <type_traits>

namespace emu {
template <class T, class... Allowed>
inline constexpr bool is_any_of = (std::is_same_v<T, Allowed> || ...);
using ull = unsigned long long;

// What was before any fence comes before what is after each later one: more than a GPU promises,
// as that needs an atomic between the two.
void fence();

template <class T, class F>
T atomic_update(T* p, F next) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (
      !__atomic_compare_exchange_n(p, &old, next(old), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
}  // namespace emu

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  static_assert(emu::is_any_of<T, int, unsigned, emu::ull>);
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> v) {
  static_assert(emu::is_any_of<T, int, unsigned>);
  return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  static_assert(emu::is_any_of<T, int, unsigned, emu::ull>);
  return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  static_assert(emu::is_any_of<T, int, unsigned, long long, emu::ull>);
  return emu::atomic_update(p, [v](T old) { return old < v ? v : old; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  static_assert(emu::is_any_of<T, int, unsigned, long long, emu::ull>);
  return emu::atomic_update(p, [v](T old) { return v < old ? v : old; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  static_assert(emu::is_any_of<T, int, unsigned, emu::ull>);
  return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> v) {
  static_assert(emu::is_any_of<T, int, unsigned, emu::ull>);
  return __atomic_fetch_and(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> compare, std::type_identity_t<T> v) {
  static_assert(emu::is_any_of<T, int, unsigned, emu::ull>);
  __atomic_compare_exchange_n(p, &compare, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return compare;
}
// Counts 0 .. limit and starts again.
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return emu::atomic_update(p, [limit](unsigned old) { return old >= limit ? 0 : old + 1; });
}
inline void __threadfence() { emu::fence(); }
inline void __threadfence_block() { emu::fence(); }
