// SPDX-License-Identifier: Apache-2.0
// Copies of experts for loads that are made up: they even out what a few experts make uneven, stay
// while the load stays, follow it when it moves, and never are more than there is room for.
#include "worker/leader/expert_balancer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "parallel/experts.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;

struct Case {
  int tp, dp, experts, layers;
};

std::vector<UnitRange> even_owners(const Case& c) {
  std::vector<UnitRange> owned;
  const int ranks = c.tp * c.dp;
  for (int i = 0; i < ranks; i++)
    owned.push_back({i * c.experts / ranks, (i + 1) * c.experts / ranks});
  return owned;
}

ExpertOwners owners_of(const Case& c) {
  ExpertOwners owners{
      .tp = c.tp, .dp = c.dp, .experts = c.experts, .layers = {}, .owned = even_owners(c)};
  for (int layer = 0; layer < c.layers; layer++) owners.layers.push_back(layer + 1);
  return owners;
}

// Tokens that choose experts with probability 1 / rank^s, `hottest` first and the others after it.
// Sampled, so that no two seconds are the same.
class ZipfLoad {
 public:
  ZipfLoad(const Case& c, double s) : case_(c), s_(s) {}
  int hottest = 0;

  std::vector<ExpertLoad> second(int64_t tokens) {
    std::vector<double> weights;
    for (int e = 0; e < case_.experts; e++)
      weights.push_back(std::pow(1 + (e - hottest + case_.experts) % case_.experts, -s_));
    std::discrete_distribution<int> draw(weights.begin(), weights.end());
    std::vector<ExpertLoad> loads;
    for (int dp = 0; dp < case_.dp; dp++) {
      ExpertLoad load{.dp = dp, .layers = {}};
      for (int layer = 0; layer < case_.layers; layer++) {
        LayerExpertLoad chosen{layer + 1, std::vector<uint32_t>(size_t(case_.experts), 0)};
        for (int64_t i = 0; i < tokens; i++) chosen.chosen[size_t(draw(random_))]++;
        load.layers.push_back(chosen);
      }
      loads.push_back(load);
    }
    return loads;
  }

 private:
  Case case_;
  double s_;
  std::mt19937 random_{7};
};

// What the ranks make of the plans' copies.
class Placements {
 public:
  explicit Placements(const Case& c) : case_(c) {
    const auto owned = even_owners(c);
    for (int i = 0; i < c.layers * c.tp; i++) {
      const auto first = owned.begin() + i % c.tp * c.dp;
      of_.emplace_back(c.experts, std::vector<UnitRange>(first, first + c.dp));
    }
  }
  void apply(const std::vector<ExpertCopy>& copies) {
    for (const ExpertCopy& copy : copies) {
      bool changed = false;
      for (int tp = 0; tp < case_.tp; tp++) {
        ExpertPlacement& p = at(copy.layer - 1, tp);
        if (p.owner(copy.expert) < 0) continue;
        changed = copy.add ? p.add(copy.expert, copy.dp) : p.drop(copy.expert, copy.dp);
        EXPECT_LE(copies_on(p, copy.dp), kMostExpertCopies);
      }
      EXPECT_TRUE(changed) << "layer " << copy.layer << " expert " << copy.expert;
    }
  }
  // Rows of the busiest rank over the mean, each token placed one by one.
  double imbalance(const std::vector<ExpertLoad>& loads, int layer) {
    std::vector<double> rows(size_t(case_.tp * case_.dp), 0);
    double all = 0;
    for (const ExpertLoad& load : loads)
      for (int e = 0; e < case_.experts; e++)
        for (uint32_t i = 0; i < load.layers[size_t(layer)].chosen[size_t(e)]; i++)
          for (int tp = 0; tp < case_.tp; tp++) {
            const int d = at(layer, tp).place(e, load.dp, i);
            if (d < 0) continue;
            rows[size_t(tp * case_.dp + d)]++;
            all++;
          }
    return *std::max_element(rows.begin(), rows.end()) * double(rows.size()) / all;
  }
  int copies() const {
    int n = 0;
    for (const ExpertPlacement& p : of_)
      for (int d = 0; d < p.ranks(); d++) n += copies_on(p, d);
    return n;
  }

 private:
  ExpertPlacement& at(int layer, int tp) { return of_[size_t(layer * case_.tp + tp)]; }
  static int copies_on(const ExpertPlacement& p, int d) {
    int n = 0;
    for (const int e : p.held(d)) n += p.owner(e) != d;
    return n;
  }

  const Case case_;
  std::vector<ExpertPlacement> of_;
};

// Seconds of a life: reports come, plans go, ten a second.
class Life {
 public:
  Life(const Case& c, double s, ExpertOwners owners)
      : load(c, s), placements(c), balancer_(std::move(owners), {}) {}
  Life(const Case& c, double s) : Life(c, s, owners_of(c)) {}

  // The number of copies that came or went.
  int pass(int seconds, int64_t tokens) {
    int changes = 0;
    for (int second = 0; second < seconds; second++) {
      last = load.second(tokens);
      for (const ExpertLoad& part : last) EXPECT_TRUE(balancer_.add(part, now_).ok());
      for (int plan = 0; plan < 10; plan++, now_ += 100ms) {
        const auto copies = balancer_.next(now_);
        int adds = 0;
        for (const ExpertCopy& copy : copies) adds += copy.add;
        EXPECT_LE(adds, BalancerOptions().adds_per_plan);
        placements.apply(copies);
        told.insert(told.end(), copies.begin(), copies.end());
        changes += int(copies.size());
      }
      EXPECT_EQ(balancer_.copies() >= placements.copies(), true);
    }
    return changes;
  }
  double imbalance() { return balancer_.imbalance(now_); }
  int copies() const { return balancer_.copies(); }

  ZipfLoad load;
  Placements placements;
  std::vector<ExpertLoad> last;
  std::vector<ExpertCopy> told;

 private:
  ExpertBalancer balancer_;
  TimePoint now_{1s};
};

TEST(ExpertBalancer, EvensOutWhatAFewHotExpertsMakeUneven) {
  for (const Case c : {Case{1, 2, 8, 2}, Case{1, 4, 32, 3}, Case{1, 8, 64, 1}}) {
    SCOPED_TRACE(c.dp);
    Life life(c, 1.0);
    const double before = Placements(c).imbalance(life.load.second(4000), 0);
    life.pass(20, 4000);
    EXPECT_GT(before, 1.4);
    for (int layer = 0; layer < c.layers; layer++)
      EXPECT_LT(life.placements.imbalance(life.last, layer), 1.15) << before;
    EXPECT_GT(life.copies(), 0);
    EXPECT_EQ(life.copies(), life.placements.copies());
    // The prediction is what placing every token gives, but for chance.
    double placed = 0;
    for (int layer = 0; layer < c.layers; layer++)
      placed += life.placements.imbalance(life.last, layer) / c.layers;
    EXPECT_NEAR(life.imbalance(), placed, 0.05);
  }
}

TEST(ExpertBalancer, EachColumnBalancesItsOwn) {
  const Case c{2, 4, 32, 1};
  Life life(c, 1.2);
  life.pass(20, 4000);
  EXPECT_GT(life.copies(), 0);
  for (const ExpertCopy& copy : life.told) EXPECT_TRUE(copy.dp >= 0 && copy.dp < c.dp);
}

TEST(ExpertBalancer, ALoadThatStaysLeavesCopiesWhereTheyAre) {
  for (const double s : {0.6, 1.0, 1.4}) {
    Life life({1, 4, 32, 4}, s);
    // What was more than needed at first goes, and never comes back.
    life.pass(60, 500);
    std::set<std::pair<int, std::pair<int, int>>> added;
    for (const ExpertCopy& copy : life.told) {
      const bool again = copy.add && !added.insert({copy.layer, {copy.expert, copy.dp}}).second;
      EXPECT_FALSE(again) << "expert " << copy.expert << ", s " << s;
    }
    const int copies = life.copies();
    EXPECT_EQ(life.pass(90, 500), 0) << s;
    EXPECT_EQ(life.copies(), copies);
  }
}

TEST(ExpertBalancer, AnEvenLoadNeedsNoCopies) {
  Life life({1, 4, 32, 2}, 0);
  EXPECT_EQ(life.pass(30, 2000), 0);
  EXPECT_LT(life.imbalance(), 1.05);
  EXPECT_GE(life.imbalance(), 1.0);
}

TEST(ExpertBalancer, FollowsTheHotExpertAndGivesUpColdCopies) {
  const Case c{1, 4, 32, 2};
  Life life(c, 1.2);
  for (const int hottest : {0, 13, 22, 31, 5}) {
    life.load.hottest = hottest;
    life.pass(25, 4000);
    for (int layer = 0; layer < c.layers; layer++)
      EXPECT_LT(life.placements.imbalance(life.last, layer), 1.25) << hottest;
  }
  EXPECT_GT(life.copies(), 0);
  // All experts alike: what is copied computes nothing that its owner could not.
  Life even({1, 4, 32, 1}, 1.2);
  even.pass(20, 4000);
  ASSERT_GT(even.copies(), 0);
  even.load = ZipfLoad({1, 4, 32, 1}, 0);
  even.pass(240, 4000);
  EXPECT_EQ(even.copies(), 0);
}

TEST(ExpertBalancer, FewTokensAreLeftToChance) {
  Life life({1, 4, 32, 2}, 1.2);
  EXPECT_EQ(life.pass(30, 5), 0);
}

TEST(ExpertBalancer, OneGroupHasNobodyToCopyTo) {
  Life life({4, 1, 32, 2}, 1.2);
  EXPECT_EQ(life.pass(20, 1000), 0);
  EXPECT_GT(life.imbalance(), 1.5);
}

TEST(ExpertBalancer, RanksWithoutAShareGetNoCopies) {
  const Case c{1, 3, 6, 1};
  ExpertOwners owners = owners_of(c);
  owners.owned = {{0, 3}, {3, 3}, {3, 6}};
  owners.shares = {1, 0, 1};
  ExpertBalancer balancer(owners, {});
  TimePoint now{1s};
  int copies = 0;
  for (int plan = 0; plan < 30; plan++, now += 1s) {
    for (int dp = 0; dp < 3; dp++)
      ASSERT_TRUE(balancer.add({dp, {{1, {900, 10, 10, 10, 10, 10}}}}, now).ok());
    for (const ExpertCopy& copy : balancer.next(now)) {
      EXPECT_NE(copy.dp, 1);
      copies++;
    }
  }
  EXPECT_GT(copies, 0);
}

TEST(ExpertBalancer, TheSameReportsGiveTheSameCopies) {
  Life one({2, 4, 32, 3}, 1.1), two({2, 4, 32, 3}, 1.1);
  one.pass(30, 1000);
  two.pass(30, 1000);
  EXPECT_FALSE(one.told.empty());
  EXPECT_EQ(one.told, two.told);
}

TEST(ExpertBalancer, RefusesLoadsOfWhatIsNotThere) {
  ExpertBalancer balancer(owners_of({1, 2, 4, 1}), {});
  const auto code = [&](const ExpertLoad& load) {
    return balancer.add(load, TimePoint{1s}).code();
  };
  EXPECT_EQ(code({0, {{1, {1, 2, 3, 4}}}}), Code::kOk);
  EXPECT_EQ(code({0, {}}), Code::kOk);
  EXPECT_EQ(code({2, {{1, {1, 2, 3, 4}}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({0, {{2, {1, 2, 3, 4}}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({0, {{1, {1, 2, 3}}}}), Code::kInvalidArgument);
}

}  // namespace
}  // namespace cohort
