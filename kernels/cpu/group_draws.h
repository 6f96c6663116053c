#pragma once
// One draw for all query heads of a KV head (draws=group, choose=group). Private to kernels/cpu.
//
// Head h of the group has budget b_h and attention a_hj to key j; B is the sum of the budgets. Keys
// are drawn R = B times from p_j, by the random stream of the group's first head. Every head uses
// every drawn row. A row drawn c_j times has the weight c_j a_hj / (R p_j) for head h, whose mean
// over draws is a_hj.
//
//   proposal=attention       p_j = sum_h b_h / B a_hj, so that a_hj / p_j <= B / b_h;
//   proposal=attention-norm  3/4 of rms_h(a_hj) |v_j|, normalised, and 1/4 of the above.
//
// This is the balance heuristic of multiple importance sampling (Veach and Guibas 1995; Owen and
// Zhou 2000); the second is after Drineas, Kannan and Mahoney 2006. docs/shared-draws.md has the
// derivations.
//
// Draws are made from integers. A piece is kPieceKeys keys of a row, from position 0 on. The
// largest exp(s_hj) of head h in piece t is in (2^(E_ht - 1), 2^E_ht]. There key j has the integer
// weight w_hj = exp(s_hj) 2^(30 - E_ht), rounded to nearest. W_ht is the piece's sum, and E_h the
// largest E_ht. The head's sum is W_h = 2^9 sum_t 2^(E_ht - E_h) W_ht, each term rounded. With U_h
// = ceil(2^69 b_h / B / W_h) and U_ht = ceil(U_h 2^(E_ht - E_h)) key j has
//   m_j = sum_h U_ht w_hj
// integers, some 2^60 b_h / B for all keys of a head. A sum of keys has the sum of their integers,
// so that pieces and parts of pieces are sums of the split kernel's sums on a GPU. Weights divide
// by m_j / sum m_i, and so roundings of U bias nothing. kernels/piece_masses.h has the arithmetic
// of both devices. A proposal with norms has m_j = ceil(2^60 p_j).
//
// With choose=group nothing is drawn from the mixture:
//   top-k   takes the R keys of the largest p_j, which ranks stand for;
//   quest   takes the pages that R rows buy, by the mean over heads of each head's softmax over its
//           bounds of the pages' scores;
//   vattention, adaptive-denominator   take the heavy keys of the largest p_j, one pilot and one
//           sample of the tail, as large as the head with the largest bound needs. p_j is the plain
//           mean then.
// Each head's weights are as with a choice of its own.
//
// A GroupDraw belongs to one thread.
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/methods.h"
#include "kernels/piece_masses.h"

namespace allot::kernels {

// Returns true if the method draws or chooses rows once for a group of this many heads. A group of
// one does as a head does, unless norms of values or the mean value are asked for.
bool sharesRows(const MethodOptions& options, int group);

// A draw with its scratch memory.
struct GroupDraw {
  // Distinct rows that were drawn, ascending, with their counts and p_j: the share of the integers.
  std::vector<int32_t> rows;
  std::vector<uint32_t> counts;
  std::vector<double> probabilities;
  uint64_t draws = 0;  // R

  std::vector<Head> heads;     // the caller's: those that draw together
  std::vector<int> members;    // the caller's: which heads of the group they are
  std::vector<int32_t> pages;  // quest: the pages kept
  std::vector<double> page_logs;
  int sampled = 0;                     // vattention, adaptive-denominator: keys of the tail
  std::vector<uint64_t> masses;        // [keys] m_j
  std::vector<uint64_t> piece_masses;  // [pieces] their sums
  std::vector<uint32_t> weights;       // [keys] w_hj of one head
  std::vector<int> gaps;               // [pieces] E_h - E_ht of one head
  std::vector<float> squares, ranks;   // [keys] sum_h b_h / B a_hj^2; m_j as a rank of keys
  std::vector<uint64_t> thresholds;    // [R], ascending

  // Makes room for rows of `length` keys and `group` heads.
  void plan(int length, int group);
};

// Draws or chooses for draw->heads, which share keys, random stream and options. Uses `selection`
// as scratch.
// Requires: at least one head; each has a budget above 0 and, except for quest, exp_weights with a
// sum above 0; fewer than kTooManyKeys keys.
void drawForGroup(GroupDraw* draw, Selection* selection);

// Returns m_j of a key with the proposal p.
uint64_t massOf(double p);

// Draws draw->draws rows of the keys any.first..any.n - 1, by their masses. `any` has the method's
// options and the random stream.
// Requires: masses have a sum from 1 to 2^62 - 1.
void drawRows(const Head& any, GroupDraw* draw);

// Fills the selection of one of the draw's heads. With draws=group its draws are the head's own
// budget, and its counts are the group's.
void weighForHead(const GroupDraw& draw, const Head& head, Selection* selection);

}  // namespace allot::kernels
