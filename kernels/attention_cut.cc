// SPDX-License-Identifier: Apache-2.0
// Cutting a step's attention into items. Sequences that begin with the same blocks are rows of
// common items there: what the cache holds is read and widened once for all of them. A row does not
// care who else is in its item, so this changes no bit.
#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/attention_plan.h"

namespace cohort {
namespace {

// Decode is bound by reading keys, prefill by arithmetic per row: a key costs about as much to read
// as four rows cost to use it.
float cost(int positions, int heads, int keys) {
  return float(keys) * float(positions * heads + 4);
}

std::vector<AttentionHeads> heads_of(const KvGeometry& g) {
  std::vector<AttentionHeads> heads;
  for (int h = 0; h < g.kv_heads; h++) heads.push_back({h, g.first_head(h), g.heads_of(h)});
  return heads;
}

int splits_of(int keys) { return (keys + kSplit - 1) / kSplit; }

class Cutter {
 public:
  Cutter(AttentionBatch::Plan& plan, const KvGeometry& geometry,
         const std::vector<AttentionEntry>& entries, int threads)
      : plan_(plan),
        heads_(heads_of(geometry)),
        entries_(entries),
        threads_(threads),
        first_merge_(entries.size(), -1) {
    float total = 0;
    for (const AttentionEntry& e : entries)
      for (const AttentionHeads& heads : heads_)
        total += cost(e.count, heads.count, e.start + e.count);
    target_ = total / float(8 * threads);
  }

  // Returns how many rows of partial results there are.
  int64_t run() {
    if (heads_.empty()) return 0;
    for (size_t i = 0; i < entries_.size(); i++)
      if (entries_[i].count == 1 && sees(int(i), 1)) decodes_.push_back(int(i));
    sort(decodes_, 0, 1);
    for (std::span<int> rest = decodes_; !rest.empty();) {
      const std::span<int> group = rest.first(alike(rest, 0, 1));
      if (group.size() > 1) share(group);
      rest = rest.subspan(group.size());
    }
    const int positions = std::max(1, kItemRows / plan_.shape.most_heads);
    for (size_t i = 0; i < entries_.size(); i++)
      for (int q0 = 0; first_merge_[i] < 0 && q0 < entries_[i].count; q0 += positions)
        cut(int(i), q0, std::min(q0 + positions, entries_[i].count));
    return partial_rows_;
  }

 private:
  // Entries that have the same blocks before this piece.
  struct Part {
    std::span<int> members;  // of decodes_
    int piece;
  };

  // Whether all positions of the entry see all keys of so many splits.
  bool sees(int entry, int splits) const {
    return entries_[size_t(entry)].start + 1 >= splits * kSplit;
  }
  // Ids of the entry's blocks in splits [split0, split1).
  std::span<const int32_t> blocks(int entry, int split0, int split1) const {
    return {entries_[size_t(entry)].blocks + split0 * kSplitBlocks,
            size_t(split1 - split0) * kSplitBlocks};
  }
  bool same(int a, int b, int split0, int split1) const {
    const auto x = blocks(a, split0, split1), y = blocks(b, split0, split1);
    return std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
  }
  // Makes those neighbours that have the same blocks in splits [split0, split1).
  void sort(std::span<int> all, int split0, int split1) const {
    const auto differs = [&](int i) { return !same(all[0], i, split0, split1); };
    if (std::none_of(all.begin(), all.end(), differs)) return;
    std::sort(all.begin(), all.end(), [&](int a, int b) {
      const auto x = blocks(a, split0, split1), y = blocks(b, split0, split1);
      return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
    });
  }
  // How many, so sorted, are like the first.
  size_t alike(std::span<const int> all, int split0, int split1) const {
    size_t n = 1;
    while (n < all.size() && same(all[0], all[n], split0, split1)) n++;
    return n;
  }

  // Positions [q0, q1) of an entry that shares nothing, all KV heads.
  void cut(int i, int q0, int q1) {
    const int keys = entries_[size_t(i)].start + q1, splits = splits_of(keys);
    int piece = 1;  // a power of two: pieces are then subtrees
    while (piece < splits && cheap(q1 - q0, 2 * piece)) piece *= 2;
    const int pieces = threads_ == 1 ? 1 : (splits + piece - 1) / piece;
    for (const AttentionHeads& heads : heads_) {
      if (pieces == 1) {
        const float all = cost(q1 - q0, heads.count, keys);
        plan_.items.push_back({i, heads, q0, q1, 0, splits, -1, 0, all});
        continue;
      }
      add_merge((q1 - q0) * heads.count, pieces, piece);
      const int merge = int(plan_.merges.size()) - 1;
      for (int p = 0; p < pieces; p++) add_piece(i, heads, q0, q1, merge, p, p);
    }
  }

  // Whether so many positions over so many splits are less than an item should be.
  bool cheap(int positions, int splits) const {
    return cost(positions, plan_.shape.most_heads, splits * kSplit) < target_;
  }

  void add_merge(int rows, int units, int unit_splits) {
    plan_.merges.push_back({partial_rows_, rows, units, units, unit_splits, units});
    partial_rows_ += int64_t(units) * rows;
  }

  // Piece number `piece` of a merge, from `unit` on.
  void add_piece(int i, const AttentionHeads& heads, int q0, int q1, int merge, int piece,
                 int unit) {
    const AttentionMerge& m = plan_.merges[size_t(merge)];
    const int keys = entries_[size_t(i)].start + q1, first = unit * m.unit_splits;
    const int last = std::min(first + (m.unit_splits << piece_level(m, unit)), splits_of(keys));
    plan_.items.push_back(
        {i, heads, q0, q1, first, last, merge, m.first_row + int64_t(piece) * m.rows,
         cost(q1 - q0, heads.count, std::min(last * kSplit, keys) - first * kSplit)});
  }

  // Entries that begin with the same split; some may be alike for longer than others. As far as
  // they are alike they are cut into pieces of one size, each an item of those who have the same
  // blocks up to its end.
  void share(std::span<int> group) {
    const int piece = shared_piece(group);
    for (const int i : group) {
      first_merge_[size_t(i)] = int(plan_.merges.size());
      const int splits = splits_of(entries_[size_t(i)].start + 1);
      for (const AttentionHeads& heads : heads_)
        add_merge(heads.count, (splits + piece - 1) / piece, piece);
    }
    parts_.push_back({group, 0});
    while (!parts_.empty()) {
      const Part part = parts_.back();
      parts_.pop_back();
      share_piece(part, piece);
    }
  }

  // One piece, and what comes after it for those who part ways there.
  void share_piece(const Part& part, int splits) {
    const int begin = part.piece * splits, end = begin + splits;
    const auto whole = std::partition(part.members.begin(), part.members.end(),
                                      [&](int i) { return sees(i, end); });
    for (auto i = whole; i != part.members.end(); i++) cut_rest(*i, part.piece);
    std::span<int> rest(part.members.begin(), whole);
    sort(rest, begin, end);
    while (!rest.empty()) {
      const std::span<int> members = rest.first(alike(rest, begin, end));
      rest = rest.subspan(members.size());
      if (members.size() == 1) {
        cut_rest(members[0], part.piece);
        continue;
      }
      add_shared(members, part.piece, splits);
      parts_.push_back({members, part.piece + 1});
    }
  }

  // Splits of a piece: no more than all have in common, and a power of two.
  int shared_piece(std::span<const int> group) const {
    int common = 1;
    const auto all_have = [&](int splits) {
      return std::all_of(group.begin(), group.end(),
                         [&](int i) { return sees(i, splits) && same(group[0], i, 0, splits); });
    };
    while (cheap(int(group.size()), 2 * common) && all_have(2 * common)) common *= 2;
    return common;
  }

  // What comes after the first `shared` pieces, which the entry has for itself.
  void cut_rest(int i, int shared) {
    for (const AttentionHeads& heads : heads_) {
      const int merge = first_merge_[size_t(i)] + heads.kv_head;
      AttentionMerge& m = plan_.merges[size_t(merge)];
      m.single = m.pieces = shared;
      while (1 << m.most_level < m.units && cheap(1, m.unit_splits * (2 << m.most_level)))
        m.most_level++;
      for (int unit = shared; unit < m.units; unit += 1 << piece_level(m, unit))
        add_piece(i, heads, 0, 1, merge, m.pieces++, unit);
    }
  }

  void add_shared(std::span<const int> members, int piece, int piece_splits) {
    const size_t most = size_t(std::max(1, kItemRows / plan_.shape.most_heads));
    for (const AttentionHeads& heads : heads_)
      for (size_t begin = 0; begin < members.size(); begin += most) {
        const size_t end = std::min(begin + most, members.size());
        const int first = members[begin], count = int(end - begin);
        plan_.items.push_back({first, heads, 0, 1, piece * piece_splits, (piece + 1) * piece_splits,
                               first_merge_[size_t(first)] + heads.kv_head, 0,
                               cost(count, heads.count, piece_splits * kSplit),
                               int(plan_.sharers.size()), count});
        for (size_t m = begin; m < end; m++) {
          const int merge = first_merge_[size_t(members[m])] + heads.kv_head;
          const AttentionMerge& to = plan_.merges[size_t(merge)];
          plan_.sharers.push_back(
              {members[m], merge,
               entries_[size_t(members[m])].first_row - entries_[size_t(first)].first_row,
               to.first_row + int64_t(piece) * to.rows});
        }
      }
  }

  AttentionBatch::Plan& plan_;
  const std::vector<AttentionHeads> heads_;  // by KV head
  const std::vector<AttentionEntry>& entries_;
  const int threads_;
  float target_;  // cost of one item: eight items a thread even out what the model gets wrong
  std::vector<int> first_merge_;  // of an entry that shares, one per KV head; else -1
  std::vector<int> decodes_;
  std::vector<Part> parts_;
  int64_t partial_rows_ = 0;
};

}  // namespace

void cut_items(AttentionBatch::Plan& plan, const KvGeometry& geometry,
               const std::vector<AttentionEntry>& entries, int threads) {
  const int64_t rows = Cutter(plan, geometry, entries, threads).run();
  plan.missing = std::make_unique<std::atomic<int>[]>(plan.merges.size());
  plan.partials = std::make_unique_for_overwrite<float[]>(size_t(rows) * size_t(plan.shape.stride));
  // The last item to start is short.
  std::stable_sort(plan.items.begin(), plan.items.end(),
                   [](const AttentionItem& a, const AttentionItem& b) { return a.cost > b.cost; });
}

}  // namespace cohort
