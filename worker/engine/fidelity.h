#pragma once
// Fidelity: measures how close a method's attention is to dense attention in the same state
// (SANTA paper, Appendix U). One thread: the decoder's.
//
// Every row is decoded greedily and densely, after a whole prompt. Two questions are asked at each
// of these decode steps:
//  - Error: in every layer the method gets the queries, keys and values of dense attention. The
//    method's output is compared with the dense one, head by head. A head whose dense output is
//    zero is left out. A method's output of zeros has an error of 1 and a cosine of 0.
//  - Agreement: the whole step is run again with the method, from the same dense past. Is the next
//    token the same? How far is its distribution from dense attention's (KL divergence)?
// The paper runs the method in the final layer only, for the error and for the agreement ("a full
// one-token forward pass"). Here the error is taken in every layer, each from the dense state. The
// cells of the last layer are therefore the paper's figure.
// The agreement has three forms. The method runs in all layers at once, which is how it is used and
// the harder question; in the last layer alone, as in the paper; or in each layer alone in turn.
//
// Variance (Appendices D, M and N) takes several independent outputs of the method in one state: at
// the last position of a prompt. It measures the outputs' distance from each other, and how many
// different rows each output reads.
#include <cstdint>
#include <vector>

#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "core/spec/measure_options.h"
#include "worker/model/generation.h"

namespace allot {

struct Fidelity {
  std::vector<v1::FidelityCell> cells;       // by task, layer and support; none without states
  std::vector<v1::AgreementCell> agreement;  // by task and layer; empty for variance
  uint64_t steps = 0;                        // steps of the method, counted once a row
  kernels::RowStatistics statistics;         // reads of these steps
};

struct FidelityProtocol {
  uint32_t support_tile = MeasureOptions().tile;  // keys a tile
  AgreementLayers agreement = AgreementLayers::kAll;
  bool errors = true;  // false: fidelity has the agreement alone, and no cells
  uint32_t replicates = MeasureOptions().replicates;  // of variance; at least 2
};

// Pages a row that fidelity, or variance, needs beyond pagesForRow().
constexpr size_t kFidelityPages = 1;

// Measures error and agreement. `rows` has the method's schedules and `options` the method, as
// generate() takes them. tasks[i] is the task of rows[i]. kUsage if the pool has no kFidelityPages
// for each row, kData if the method refuses a layer, and the errors of generate().
Result<Fidelity> measureFidelity(Decoder* decoder, const Tokenizer& tokenizer,
                                 const std::vector<GenerationRow>& rows,
                                 const std::vector<uint32_t>& tasks,
                                 const GenerationOptions& options,
                                 const FidelityProtocol& protocol = {});

// Measures the variance of outputs at the last position of each prompt. last_tokens[i] is the last
// token of rows[i]'s prompt. The last token is read again, densely, to get its queries. Replicate r
// of a row draws like the row's decode step r. Errors are measureFidelity's.
Result<Fidelity> measureVariance(Decoder* decoder, const std::vector<GenerationRow>& rows,
                                 const std::vector<int32_t>& last_tokens,
                                 const std::vector<uint32_t>& tasks,
                                 const GenerationOptions& options,
                                 const FidelityProtocol& protocol = {});

// Returns how many tiles of `tile` keys, heaviest first, hold at least 90 % of the softmax weight
// of one query head. scores: [n].
// Requires: n > 0, tile > 0.
int tilesOfSupport(const std::vector<float>& scores, uint32_t tile);
// Returns the same number from the softmax weight of each tile.
int tilesOfSupport(std::vector<double> masses);
// Returns the bucket of a FidelityCell: 1, 2, 3 (3..4), 5 (5..8) or 9 (9 and more).
// Requires: tiles > 0.
uint32_t supportBucket(int tiles);

}  // namespace allot
