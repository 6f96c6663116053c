#pragma once
// Fidelity: how close a method's attention comes to dense attention in the same state
// (SANTA paper, Appendix U).
//
// Every row is decoded greedily and densely, and at each of its steps two questions are asked:
//  - Error: in every layer the method gets the queries, keys and values that dense attention got;
//    its output is compared with the dense one, head by head. All states count: a budget of 0 is an
//    error of 1 (and a cosine of 0), a budget of n or more an error of 0.
//  - Agreement: the whole step once more with the method in all layers, from the same dense past;
//    would the next token have been the same?
// The paper runs the method in the final layer only, for the error as well as for the agreement
// ("a full one-token forward pass"). Here the error is taken in every layer, each from the dense
// state, so that the last layer's cells are the paper's figure; the agreement is that of the method
// in all layers at once, which is how it is used and the harder question.
#include <cstdint>
#include <vector>

#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "model/generation.h"

namespace allot {

struct Fidelity {
  std::vector<v1::FidelityCell> cells;       // by task, layer and support; only those with states
  std::vector<v1::AgreementCell> agreement;  // by task
  uint64_t steps = 0;                        // row-steps compared
  kernels::RowStatistics statistics;         // what the method read in the agreement's steps
};

// Pages a row that measureFidelity takes beyond pagesForRow().
constexpr size_t kFidelityPages = 1;

// `rows`, with the method's schedules, and `options`, with the method, are those that generate()
// would take; tasks[i] is rows[i]'s task. Errors as generate()'s. One thread, as the decoder.
Result<Fidelity> measureFidelity(Decoder* decoder, const Tokenizer& tokenizer,
                                 const std::vector<GenerationRow>& rows,
                                 const std::vector<uint32_t>& tasks,
                                 const GenerationOptions& options);

// How many tiles of 32 keys, heaviest first, hold 90 % of the softmax mass of one query head.
// Scores [n], n > 0.
int tilesOfSupport(const std::vector<float>& scores);
// The bucket that a cell counts it in: 1, 2, 3 (3..4), 5 (5..8), 9 (9 or more).
uint32_t supportBucket(int tiles);

}  // namespace allot
