// SPDX-License-Identifier: Apache-2.0
#include "model/bpe.h"

#include <algorithm>
#include <queue>

#include "base/utf8.h"

namespace cohort {

// A run of the piece that has become one token (or an unknown character), in a linked list.
struct Bpe::Symbol {
  uint32_t begin, bytes;  // bytes = 0: merged into its left neighbour
  TokenId id;             // -1: no token
  int previous, next;     // -1: none
};

namespace {

// A pair of neighbours that may merge. It is stale once either of them has grown or gone, which
// shows in the sum of their lengths.
struct Candidate {
  uint32_t rank;
  int left;
  uint32_t bytes;
  TokenId id;
  // The heap's top is the lowest rank, then the leftmost.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

uint64_t pair_key(TokenId left, TokenId right) {
  return uint64_t(uint32_t(left)) << 32 | uint32_t(right);
}

}  // namespace

struct Bpe::Scratch {
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

void Bpe::FreeScratch::operator()(Scratch* scratch) const { delete scratch; }
Bpe::ScratchPtr Bpe::make_scratch() { return ScratchPtr(new Scratch); }

size_t Bpe::HashPair::operator()(uint64_t pair) const {
  pair *= 0x9e3779b97f4a7c15u;  // 2^64 over the golden ratio: spreads neighbouring ids
  return size_t(pair ^ pair >> 32);
}

void Bpe::add_token(std::string_view text, TokenId id, float score) {
  tokens_.insert_or_assign(std::string(text), Entry{id, score});
  longest_token_ = std::max(longest_token_, text.size());
}

bool Bpe::add_merge(std::string_view left, std::string_view right) {
  const std::optional<TokenId> a = find(left), b = find(right);
  const std::optional<TokenId> whole = find(std::string(left).append(right));
  if (!a || !b || !whole) return false;
  merges_.try_emplace(pair_key(*a, *b), Merge{next_rank_++, *whole});
  return true;
}

void Bpe::rank_scores() {
  std::vector<float> scores;
  for (const auto& [text, entry] : tokens_) scores.push_back(entry.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  for (auto& [text, entry] : tokens_)
    entry.rank =
        uint32_t(std::lower_bound(scores.begin(), scores.end(), entry.score, std::greater<>()) -
                 scores.begin());
}

std::optional<TokenId> Bpe::find(std::string_view text) const {
  const auto found = tokens_.find(text);
  return found == tokens_.end() ? std::nullopt : std::optional<TokenId>(found->second.id);
}

void Bpe::symbols_of(std::string_view piece, Scratch& scratch) const {
  scratch.symbols.clear();
  for (size_t at = 0; at < piece.size();) {
    const std::string_view c = piece.substr(at, utf8_next(piece.substr(at)).bytes);
    const int index = int(scratch.symbols.size());
    scratch.symbols.push_back(
        {uint32_t(at), uint32_t(c.size()), find(c).value_or(-1), index - 1, index + 1});
    at += c.size();
  }
  scratch.symbols.back().next = -1;
}

std::optional<Bpe::Merge> Bpe::merge_of(std::string_view piece, const Symbol& left,
                                        const Symbol& right) const {
  if (options_.by_score) {
    const size_t bytes = left.bytes + right.bytes;
    if (bytes > longest_token_) return std::nullopt;
    const auto found = tokens_.find(piece.substr(left.begin, bytes));
    if (found == tokens_.end()) return std::nullopt;
    return Merge{found->second.rank, found->second.id};
  }
  if (left.id < 0 || right.id < 0) return std::nullopt;
  const auto found = merges_.find(pair_key(left.id, right.id));
  return found == merges_.end() ? std::nullopt : std::optional<Merge>(found->second);
}

void Bpe::consider(std::string_view piece, Scratch& scratch, int left) const {
  if (left < 0 || scratch.symbols[size_t(left)].next < 0) return;
  const Symbol& a = scratch.symbols[size_t(left)];
  const Symbol& b = scratch.symbols[size_t(a.next)];
  const std::optional<Merge> merge = merge_of(piece, a, b);
  if (!merge) return;
  scratch.heap.push_back({merge->rank, left, a.bytes + b.bytes, merge->id});
  std::push_heap(scratch.heap.begin(), scratch.heap.end());
}

void Bpe::merge_all(std::string_view piece, Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  scratch.heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); i++) consider(piece, scratch, int(i));
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end());
    const Candidate best = scratch.heap.back();
    scratch.heap.pop_back();
    Symbol& left = symbols[size_t(best.left)];
    if (left.bytes == 0 || left.next < 0) continue;
    Symbol& right = symbols[size_t(left.next)];
    if (left.bytes + right.bytes != best.bytes) continue;
    left.bytes = best.bytes;
    left.id = best.id;
    right.bytes = 0;
    left.next = right.next;
    if (left.next >= 0) symbols[size_t(left.next)].previous = best.left;
    consider(piece, scratch, left.previous);
    consider(piece, scratch, best.left);
  }
}

bool Bpe::emit_bytes(std::string_view text, std::vector<TokenId>& out) const {
  for (char c : text)
    if (bytes_[uint8_t(c)] < 0) return false;
  for (char c : text) out.push_back(bytes_[uint8_t(c)]);
  return true;
}

void Bpe::emit(std::string_view piece, const Scratch& scratch, std::vector<TokenId>& out) const {
  bool after_unknown = false;
  for (int i = 0; i >= 0; i = scratch.symbols[size_t(i)].next) {
    const Symbol& symbol = scratch.symbols[size_t(i)];
    if (symbol.id >= 0) {
      out.push_back(symbol.id);
      after_unknown = false;
      continue;
    }
    if (options_.byte_fallback && emit_bytes(piece.substr(symbol.begin, symbol.bytes), out)) {
      after_unknown = false;
      continue;
    }
    if (options_.unknown && !(after_unknown && options_.fuse_unknown))
      out.push_back(*options_.unknown);
    after_unknown = true;
  }
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    if (const std::optional<TokenId> whole = find(piece)) {
      out.push_back(*whole);
      return;
    }
  }
  symbols_of(piece, scratch);
  merge_all(piece, scratch);
  emit(piece, scratch, out);
}

}  // namespace cohort
