// Keys and values in bfloat16 and e4m3 on the CPU: what is stored is the rounded number, prompts
// and steps attend from what is stored, and a row's results depend on it alone.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/model/drawn_rows.h"
#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "worker/model/decoder.h"
#include "worker/model/generation.h"
#include "worker/model/tokenizer.h"

namespace allot {
namespace {

using kernels::Element;

const Tokenizer& tokenizer() {
  static const Tokenizer read = *Tokenizer::load(kRecall7m + "/tokenizer.json");
  return read;
}

std::unique_ptr<Decoder> load(Element element, int page_size = 16) {
  return valueOf(Decoder::load(kRecall7m, {.page_size = page_size,
                                           .kv_bytes = size_t{128} << 20,
                                           .element = element,
                                           .shadow_bits = {4},
                                           .bounds = true,
                                           .zero_reads = ZeroReads::kMeanValue}));
}

Prompt read(Decoder* decoder, const std::vector<int32_t>& ids) {
  return valueOf(decoder->prefill(ids));
}

GenerationOptions options(const std::string& text) {
  return {.method = methodOf(text), .seed = 3, .max_new_tokens = 24, .is_complete = endsALine};
}

std::vector<Generated> answers(Decoder* decoder, const std::vector<GenerationRow>& rows,
                               const GenerationOptions& options) {
  return valueOf(generate(decoder, tokenizer(), rows, options));
}

// The first layer's keys and values depend on no cache: they are float32's, rounded. Those of later
// layers are made from attention to what is stored, so that they are not.
template <typename Stored>
void expectRounded(Element element, Stored (*round)(float), float (*widen)(Stored), double bound) {
  const auto exact = load(Element::kFloat32), rounded = load(element);
  // Beside keys, values and bounds a page of these pools has the same.
  const size_t numbers = size_t{8} * 2 * (2 * 16 + 2) * 64;
  EXPECT_EQ(exact->pool().bytesPerPage() - rounded->pool().bytesPerPage(),
            numbers * (4 - sizeof(Stored)));
  const std::vector<int32_t> ids = goldenPrompt();
  const Prompt a = read(exact.get(), ids), b = read(rounded.get(), ids);
  ASSERT_EQ(a.pages, b.pages);
  for (const int64_t layer : {0, 1, 7}) {
    const kernels::PagedKv from = exact->pool().layer(layer), to = rounded->pool().layer(layer);
    ASSERT_EQ(to.element, element);
    size_t others = 0;
    double largest = 0;
    const auto compare = [&](const void* numbers, const void* stored, int64_t at) {
      const float number = static_cast<const float*>(numbers)[at];
      const Stored held = static_cast<const Stored*>(stored)[at];
      others += round(number) != held ? 1 : 0;
      largest = std::max(largest, std::abs(static_cast<double>(number - widen(held))));
    };
    for (int position = 0; position < a.length; ++position) {
      for (int head = 0; head < 2; ++head) {
        const int64_t at = from.offset(a.pages[position / 16], head, position % 16);
        for (int d = 0; d < 64; ++d) {
          compare(from.keys, to.keys, at + d);
          compare(from.values, to.values, at + d);
        }
      }
    }
    if (layer == 0) {
      EXPECT_EQ(others, 0u);
    } else {
      EXPECT_GT(others, 100u) << layer;
    }
    EXPECT_LT(largest, bound) << layer;
  }
  double apart = 0;
  for (size_t i = 0; i < a.first_logits.size(); ++i) {
    apart = std::max(apart, std::abs(static_cast<double>(a.first_logits[i]) -
                                     static_cast<double>(b.first_logits[i])));
  }
  EXPECT_GT(apart, 0);
  EXPECT_LT(apart, bound);
  EXPECT_EQ(rounded->saturatedNumbers(), 0u);
}

TEST(BFloat16Cache, HoldsTheRoundedNumbersAndPromptsAttendFromThem) {
  expectRounded(Element::kBFloat16, kernels::toBFloat16, kernels::fromBFloat16, 0.5);
}
TEST(E4M3Cache, HoldsTheRoundedNumbersAndPromptsAttendFromThem) {
  expectRounded(Element::kE4M3, kernels::toE4M3, kernels::fromE4M3, 8);
}

// The answers that another implementation gave in float32. Both freq prompts have a tie.
TEST(BFloat16Cache, GreedyDenseDecodeGivesTheGoldenAnswers) {
  const auto decoder = load(Element::kBFloat16);
  int asked = 0;
  for (const auto& question : goldenLogits()) {
    if (question["task"] == "freq") continue;
    Prompt prompt = read(decoder.get(), question["prompt_ids"]);
    const auto out =
        answers(decoder.get(), {{&prompt, SampleSchedule(8, UINT32_MAX), 1}}, options("dense"));
    EXPECT_EQ(out[0].tokens, question["answer_ids"].get<std::vector<int32_t>>())
        << question["task"] << ": " << out[0].text;
    decoder->release(&prompt);
    ++asked;
  }
  EXPECT_GE(asked, 6);
}

GenerationOptions recording(GenerationOptions options, Attended* attended) {
  options.probe = recordInto(attended);
  return options;
}

// Alone and in a batch of twelve (one panel of weights at a time, and two), with the prompt that
// other rows read from and with one of its own, with the question in the prompt and in steps, in
// pages of 16 and of 64.
void expectRowsAlone(Element element) {
  const auto decoder = load(element), large = load(element, 64);
  constexpr size_t kRows = 12, kPrompts = 4;
  std::vector<Prompt> shared, own, elsewhere;
  std::vector<std::vector<int32_t>> questions;
  for (size_t i = 0; i < kRows; ++i) {
    const auto ids = goldenPrompt(i % kPrompts);
    const auto cut = ids.end() - (i % 2 == 0 ? 0 : 9);
    if (i < kPrompts) shared.push_back(read(decoder.get(), {ids.begin(), cut}));
    if (i < kPrompts) elsewhere.push_back(read(large.get(), {ids.begin(), cut}));
    own.push_back(read(decoder.get(), {ids.begin(), cut}));
    questions.emplace_back(cut, ids.end());
  }
  for (const char* method : {"dense", "s2anta-sys", "s2anta-q4", "quest"}) {
    const GenerationOptions plain = options(method);
    std::vector<GenerationRow> rows, apart, paged;
    for (size_t i = 0; i < kRows; ++i) {
      SampleSchedule schedule{3, 2, 1, 0, 33, 1, 0, 40};
      std::rotate(schedule.begin(), schedule.begin() + i % 8, schedule.end());
      const auto name = static_cast<uint32_t>(i);
      rows.push_back({&shared[i % kPrompts], schedule, name, questions[i]});
      apart.push_back({&own[i], schedule, name, questions[i]});
      paged.push_back({&elsewhere[i % kPrompts], schedule, name, questions[i]});
    }
    Attended together, alone, unshared, in_large_pages;
    const auto out = answers(decoder.get(), rows, recording(plain, &together));
    const auto out_unshared = answers(decoder.get(), apart, recording(plain, &unshared));
    const auto out_large = answers(large.get(), paged, recording(plain, &in_large_pages));
    for (size_t i = 0; i < kRows; ++i) {
      const auto one = answers(decoder.get(), {rows[i]}, recording(plain, &alone));
      EXPECT_EQ(one[0].tokens, out[i].tokens) << method;
      EXPECT_EQ(out_unshared[i].tokens, out[i].tokens) << method;
      EXPECT_EQ(out_large[i].tokens, out[i].tokens) << method;
      EXPECT_EQ(one[0].statistics.key_bytes, out[i].statistics.key_bytes) << method;
    }
    EXPECT_TRUE(alone == together) << method;
    EXPECT_TRUE(unshared == together) << method;
    EXPECT_TRUE(in_large_pages == together) << method;
  }
  for (auto* prompts : {&shared, &own}) {
    for (Prompt& prompt : *prompts) decoder->release(&prompt);
  }
  EXPECT_EQ(decoder->pool().freePages(), decoder->pool().totalPages());
}

TEST(BFloat16Cache, ARowDependsOnNothingButItself) { expectRowsAlone(Element::kBFloat16); }
TEST(E4M3Cache, ARowDependsOnNothingButItself) { expectRowsAlone(Element::kE4M3); }

// Bytes that are counted are the stored ones.
TEST(BFloat16Cache, BytesReadAreThoseOfTheFormat) {
  std::map<Element, uint64_t> bytes;
  for (const Element element : {Element::kFloat32, Element::kBFloat16, Element::kE4M3}) {
    const auto decoder = load(element);
    Prompt prompt = read(decoder.get(), goldenPrompt());
    GenerationOptions all = options("dense");
    all.max_new_tokens = 4;
    all.is_complete = neverComplete;
    const auto out = answers(decoder.get(), {{&prompt, SampleSchedule(8, UINT32_MAX), 1}}, all);
    EXPECT_EQ(out[0].statistics.key_bytes + out[0].statistics.value_bytes,
              out[0].statistics.dense_bytes);
    bytes[element] = out[0].statistics.dense_bytes;
    decoder->release(&prompt);
  }
  EXPECT_EQ(bytes[Element::kFloat32], 2 * bytes[Element::kBFloat16]);
  EXPECT_EQ(bytes[Element::kBFloat16], 2 * bytes[Element::kE4M3]);
}

}  // namespace
}  // namespace allot
