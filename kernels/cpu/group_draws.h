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
// Draws are made from integers. A piece is kPieceKeys keys of a row, from position 0 on. Piece t
// has the mass M_t = ceil(2^30 P_t), P_t the sum of its p_j. Within it key j has the mass m_j =
// ceil(2^24 p_j / P_t), so that no key is lost whose p_j is not 0. Let C_t be the sum of the masses
// of earlier pieces, and F_j that of the piece's keys up to j. Key j then has the integers from
//   C_t 2^31 + floor(M_t 2^31 F_{j-1} / F_t)  to  C_t 2^31 + floor(M_t 2^31 F_j / F_t),
// at least 127, and weights divide by their number. A GPU computes the pieces' masses before it
// reads any key's, and then only those of the pieces that draws fall into. kernels/piece_masses.h
// has the arithmetic of both.
//
// With choose=group nothing is drawn from the mixture:
//   top-k   takes the R keys of the largest p_j;
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
  int sampled = 0;                       // vattention, adaptive-denominator: keys of the tail
  std::vector<float> proposal, squares;  // [keys] p_j; sum_h b_h / B a_hj^2
  std::vector<double> piece_shares;      // [pieces] P_t
  std::vector<uint64_t> thresholds;      // [R], ascending

  // Makes room for rows of `length` keys and `group` heads.
  void plan(int length, int group);
};

// Draws or chooses for draw->heads, which share keys, random stream and options. Uses `weights` and
// `block_weights` as scratch, of the sizes of Head::weights and Head::block_weights, and
// `selection`.
// Requires: at least one head; each has a budget above 0 and, except for quest, exp_weights with a
// sum above 0.
void drawForGroup(GroupDraw* draw, uint32_t* weights, uint64_t* block_weights,
                  Selection* selection);

// Draws draw->draws rows of the keys any.first..any.n - 1, by their proposal and the pieces'
// shares. `any` has the method's options and the random stream. Requires: proposals sum to 1, and
// each piece's share is the sum of its proposals.
void drawRows(const Head& any, GroupDraw* draw);

// Fills the selection of one of the draw's heads. With draws=group its draws are the head's own
// budget, and its counts are the group's.
void weighForHead(const GroupDraw& draw, const Head& head, Selection* selection);

}  // namespace allot::kernels
