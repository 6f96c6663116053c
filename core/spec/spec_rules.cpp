#include "core/spec/spec_rules.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <array>

#include "allot/kernels/method.h"
#include "core/spec/choices.h"
#include "core/spec/cluster_section.h"
#include "core/spec/model_catalogue.h"
#include "core/spec/prefill_profile.h"
#include "core/spec/spec.h"
#include "core/spec/task_catalogue.h"

namespace allot {
namespace {

SpecRule base(const char* path, SpecType type, const char* default_value, const char* meaning) {
  SpecRule rule;
  rule.path = std::string("spec.") + path;
  rule.type = type;
  rule.default_value = default_value;
  if (rule.default_value == kRequired) rule.when_missing = SpecDefault::kRequired;
  rule.meaning = meaning;
  return rule;
}

SpecRule base(const char* path, SpecType type, const char* default_value, const char* meaning,
              uint64_t low, uint64_t high) {
  SpecRule rule = base(path, type, default_value, meaning);
  rule.low = low;
  rule.high = high;
  return rule;
}

SpecRule text(const char* path, const char* default_value, const char* meaning) {
  return base(path, SpecType::kText, default_value, meaning);
}

SpecRule integer(const char* path, const char* default_value, uint64_t low, uint64_t high,
                 const char* meaning) {
  SpecRule rule = base(path, SpecType::kInteger, default_value, meaning);
  rule.low = low;
  rule.high = high;
  return rule;
}

SpecRule number(const char* path, const char* default_value, NumberRange range,
                const char* meaning) {
  SpecRule rule = base(path, SpecType::kNumber, default_value, meaning);
  rule.number = range;
  return rule;
}

SpecRule choice(const char* path, const char* default_value, std::vector<std::string> choices,
                const char* meaning) {
  SpecRule rule = base(path, SpecType::kChoice, default_value, meaning);
  rule.choices = std::move(choices);
  return rule;
}

// Makes the rule of an enum (core/spec/choices.h).
template <typename Enum>
SpecRule choice(const char* path, Enum default_value, const char* meaning) {
  return choice(path, wordOf(default_value).data(), wordsOf<Enum>(), meaning);
}

SpecRule live(SpecRule rule) {
  rule.live = true;
  return rule;
}

// Makes the rule one of a method that reads prompts.
SpecRule reading(SpecRule rule) {
  rule.phase = kernels::Phase::kPrefill;
  return rule;
}

// Makes the rule one of a list of measures, which are choices with parameters.
SpecRule measured(SpecRule rule) {
  rule.type = SpecType::kMeasures;
  return rule;
}

SpecRule derived(SpecRule rule) {
  rule.when_missing = SpecDefault::kDerived;
  return rule;
}

SpecRule derived(SpecRule rule, SpecType type) {
  rule.type = type;
  return derived(std::move(rule));
}

SpecRule orShare(SpecRule rule) {
  rule.or_share = true;
  return rule;
}

SpecRule orEmpty(SpecRule rule) {
  rule.may_be_empty = true;
  return rule;
}

// Sets the allowed values of a text, for messages.
SpecRule allowing(const char* allowed, SpecRule rule) {
  rule.allowed = allowed;
  return rule;
}

// Returns the measures of the tables: all except layer-loss.
std::vector<std::string> tableMeasures() {
  std::vector<std::string> names = wordsOf<Measure>();
  std::erase(names, wordOf(Measure::kLayerLoss));
  return names;
}

// Returns the schedules that have a name: all except explicit, which is written as a list.
std::vector<std::string> namedSchedules() {
  std::vector<std::string> names = wordsOf<ScheduleKind>();
  std::erase(names, wordOf(ScheduleKind::kExplicit));
  return names;
}

std::vector<SpecRule> taskRules() {
  return {
      choice("task.suite", "recall", suiteNames(),
             "Family of questions: recall and ruler generate long texts whose answers stand in the "
             "text, the others are read from files. `allot tasks` says what each one is."),
      derived(allowing("tasks of the suite (`allot tasks`)",
                       base("task.tasks", SpecType::kTexts,
                            "required; the only task of spec.task.suite, if it has one",
                            "Kinds of question asked, in equal shares."))),
      integer("task.contextTokens", "512", 16, 1048576,
              "Room for each prompt in tokens (suite ruler: for prompt and answer); more context "
              "means more KV-cache rows to choose from. Prompt and answer must fit the model."),
      integer("task.trainQuestions", "256", 0, 1000000,
              "Questions that episodes learn from, chosen once by the seed. 0, without "
              "spec.update: none, and all of spec.task.path is for evaluation."),
      derived(
          integer("task.confirmQuestions",
                  "for learners by question sets 16 for each training question, at most 4096 and "
                  "2,097,152 tokens (from a file: spec.task.trainQuestions); else 0",
                  0, 1000000,
                  "Training questions beyond trainQuestions that are asked once, under uniform "
                  "and a candidate, to find out whether it beats uniform. Once all have been "
                  "asked, no other schedule is confirmed.")),
      integer("task.heldOutQuestions", "480", 1, 1000000,
              "Other questions, never learned from, that every reported accuracy is measured on; "
              "480 give a 95 % interval of at most 4.5 points either way."),
      integer("task.maxNewTokens", "24", 0, 4096,
              "Longest answer in tokens; decoding stops there even without an end token. 0, for "
              "suite ruler: RULER's own, by task (niah 128, vt 30, cwe 120, fwe 50, qa 32); for "
              "suites longbench-v1 and infinitebench: theirs, by task (3 to 1200)."),
      orEmpty(text("task.path", "\"\"",
                   "File with the questions (gsm8k, mmlu, longbench-v2, humaneval, jsonl), the "
                   "folder that RULER's scripts made (ruler), or one with TASK.jsonl for each task "
                   "(longbench-v1, infinitebench); a relative path starts where you are or in any "
                   "folder above the experiment file. Empty: they are generated.")),
      orEmpty(text("task.heldOutPath", "\"\"",
                   "Second file that held-out questions come from, less those that the first has "
                   "too. Empty: the file is split by a hash of each question's text.")),
      derived(orEmpty(allowing("any name", text("task.promptField", "prompt",
                                                "Suite jsonl: the field with the prompt.")))),
      derived(orEmpty(allowing("any name", text("task.answersField", "answers",
                                                "Suite jsonl: the field with the answer (a string "
                                                "or a number) or several (a list of strings).")))),
      derived(orEmpty(choice("task.promptStyle", PromptStyle::kLlama,
                             "Suites gsm8k and mmlu: the SANTA paper's prompts and ways to find "
                             "the answer for Llama (a system prompt, the answer in the last line) "
                             "or DeepSeek (a sentence at the end, the answer in \\boxed{})."))),
      orEmpty(choice("task.grader", "\"\"", graderChoices(),
                     "How an answer is scored; santa: each task as the SANTA paper does. Empty: "
                     "each task's own grader.")),
      derived(orEmpty(
          choice("task.split", TaskSplit::kTest,
                 "Suite mmlu, where spec.task.path is a folder as published: the questions of its "
                 "folder test, or of val (validation), which the SANTA paper asks."))),
  };
}

// Returns the rule of a key whose value in a stored experiment is the profile itself, in place of
// the file's name.
SpecRule profileRule(const char* path, const char* help) {
  SpecRule rule = orEmpty(text(path, "\"\"", help));
  rule.most_bytes = kMostProfileText;
  return rule;
}
SpecRule kvProfileRule() {
  return profileRule(
      "model.kvProfile",
      "File with a scale for each layer and KV head, made by `allot calibrate kv`: what kvDtype "
      "fp8 takes instead of the checkpoint's scales; a relative path starts where you are or in "
      "any folder above the experiment file.");
}
SpecRule prefillProfileRule() {
  return profileRule(
      "attention.prefillProfile",
      "File with a threshold for each layer and head, made by `allot calibrate sale`: what "
      "tau=profile of sale stands for; a relative path starts where you are or in any folder above "
      "the experiment file.");
}

std::vector<SpecRule> runRules() {
  return {
      integer(
          "seed", "1", 0, (uint64_t{1} << 63) - 1,
          "Starts every random stream (schedules, questions, draws); the same file with the same "
          "seed makes the same draws, another seed asks other questions and draws independently."),
      integer("repetition", "0", 0, (uint64_t{1} << 63) - 1,
              "Another number draws schedules, the order of questions, reads and tokens anew, over "
              "the same questions; `allot fork` takes one that nobody had. 0: the seed alone says "
              "what is drawn."),
      text("model.path", kRequired,
           "Folder with config.json, *.safetensors and tokenizer.json, as published on Hugging "
           "Face, or a GGUF file; a relative path starts where you are or in any folder above the "
           "experiment file."),
      choice("model.dtype", Dtype::kFloat32,
             "Number format of weights and products: bfloat16, on a GPU only, takes half the "
             "memory and is how large models are published."),
      choice(
          "model.kvDtype", KvDtype::kBFloat16,
          "Number format of keys and values, which prompts and answers are attended from: bfloat16 "
          "takes half the memory of float32 and a CPU reads it faster, fp8 (e4m3) takes a quarter, "
          "with the scales that the checkpoint has (k_scale, v_scale) or 1.0; float32 and fp8 are "
          "for the CPU alone."),
      kvProfileRule(),
      choice("model.device", DeviceChoice::kAuto,
             "Where workers compute: auto is an NVIDIA GPU where a worker's build and machine have "
             "one that decodes with all of the experiment's methods, else the CPU."),
      choice("model.chatTemplate", "auto", chatTemplateChoices(),
             "Turns and marks that an instruction-tuned model wants a question in: auto executes "
             "the template that the model publishes (a model without one gets none), none asks in "
             "plain text, rendered takes the prompts of suite jsonl as they are, with the special "
             "tokens that stand in them. Suite recall never uses one, and prompts of RULER's "
             "files, and of five "
             "tasks of longbench-v1, are asked as they are."),
  };
}

std::vector<SpecRule> learningRules() {
  return {
      reading(base("attention.prefill", SpecType::kMethod, "dense",
                   "How the prompt is read: dense attends to every earlier token, exactly; the "
                   "others choose blocks of keys, or sample each token's attention with its "
                   "layer's draws. `allot methods` says what each one does.")),
      prefillProfileRule(),
      base("attention.decode", SpecType::kMethod, "s2anta-sys",
           "How episodes attend while they write the answer: a method with its parameters, as in "
           "s2anta-flash tileSize=64. `allot methods` says what each one does."),
      choice(
          "attention.protocol", Protocol::kA,
          "What is sampled: A reads the whole prompt as spec.attention.prefill says and samples "
          "while it writes the answer, B also samples while it reads the question at the prompt's "
          "end (niah's last sentence, for example). Figures of the two are not comparable."),
      number("generation.temperature", "0", {.high = 10},
             "Divides the logits before a token is drawn; 0 takes the likeliest token. Draws are "
             "seeded by question and episode, whatever else is in the batch."),
      number("generation.topP", "1", {.above_low = true, .high = 1},
             "With a temperature: draw from the likeliest tokens that together have this mass."),
      integer("generation.topK", "0", 0, 1000000,
              "With a temperature: draw from this number of the likeliest tokens; 0 from all."),
      number("generation.repetitionPenalty", "1", {.low = 0.01, .high = 10},
             "Divides the positive logits of tokens that the prompt or the answer so far has, and "
             "multiplies their negative ones, before the temperature does anything; the SANTA "
             "paper has 1.1 for GSM8K and MMLU. 1: none. With another one the host of a GPU "
             "chooses the tokens, which is slower."),
      orShare(derived(
          integer("policy.totalBudget",
                  "the first of spec.policy.totalBudgets; required without it", 1, kMaxBudget,
                  "Reads per head and decoded token, value rows, summed over all layers; the "
                  "policy learns which layers get them. 8 over 8 layers is one read a layer. With "
                  "spec.policy.price bytes or time a share of dense attention's, as in 15 %."))),
      orShare(orEmpty(base("policy.totalBudgets", SpecType::kIntegers, "[]",
                           "Several total budgets, as in [8, 16, 32] or [10 %, 15 %]: a schedule "
                           "is learned for each, together. Empty: spec.policy.totalBudget alone.",
                           1, kMaxBudget))),
      choice("policy.price", Price::kReads,
             "What budgets count: reads; bytes of keys and values, as a share of what dense "
             "attention reads at spec.task.contextTokens; or time, as a share of dense attention's "
             "in spec.policy.stepTimes. With bytes or time a layer is off, reads all rows, or 1, "
             "2, 3, 4, 6, 8, 12, 16, ... rows a head."),
      allowing("times as in dense 711, 8 132, 128 144",
               orEmpty(text(
                   "policy.stepTimes", "\"\"",
                   "With spec.policy.price time: microseconds of one layer's decode step, "
                   "of dense attention and of spec.attention.decode at several numbers of "
                   "reads a head, as in dense 711, 8 132, 128 144; `allot bench kernels "
                   "--json` on a GPU writes such a text for each method. Between two numbers the "
                   "time is linear; fewer or more reads than these have no price."))),
      integer("policy.minPerLayer", "0", 0, 100000,
              "Reads that every layer (every head, where spec.policy.granularity says so) gets "
              "before the policy spreads the rest; with 0 it may read nothing, and "
              "spec.policy.zeroReads says what it then gives."),
      choice("policy.granularity", Granularity::kLayer,
             "What reads are spread over: layers, or the KV heads or query heads of each layer, "
             "which may differ in what they need. Budgets stay reads per head, in the mean over a "
             "layer's heads."),
      choice("policy.zeroReads", ZeroReadsChoice::kOff,
             "What a layer or head without reads gives: off zeros, mean-value the mean of the "
             "values so far, which costs no reads, window attention to the newest 64 keys, which "
             "are counted as read (on the CPU only)."),
      derived(integer("policy.measureQuestions",
                      "64 where spec.evaluation.schedules has measured, or with a spec.update "
                      "where spec.policy.price is bytes or time; else 0",
                      0, 1000000,
                      "Training questions on which each layer is measured before the first update, "
                      "for measured schedules and as the prior of learner additive: how far its "
                      "next tokens are from dense attention's while it alone reads 0, 1, 2, 4, 8, "
                      "16 or 32 rows. No answer is graded. At most spec.task.trainQuestions; 0: "
                      "not measured.")),
      integer("rollout.questionsPerEpisode", "16", 1, 4096,
              "Questions answered under one drawn schedule; their mean score is the episode's "
              "reward. At most task.trainQuestions."),
      integer("rollout.episodesPerPull", "1", 1, 1024,
              "Episodes that a worker runs before it asks for the policy again; more makes results "
              "older when they arrive. 1: as many as fill a decode step of its device "
              "(`allot-worker --rows`) and leave the other workers their part of an update."),
      derived(integer("rollout.episodesPerQuestionSet",
                      "spec.update.episodesPerUpdate, or more: 4 or more for each total budget; 1 "
                      "for learner reinforce with one budget of layers and for santa",
                      1, 10000,
                      "Episodes in a row that answer the same questions, so that schedules are "
                      "compared and not questions; they go round the total budgets.")),
  };
}

std::vector<SpecRule> updateRules() {
  return {
      derived(choice("update.learner",
                     "reinforce where optimizer, learningRate, baseline or entropyBonus is given; "
                     "else additive",
                     wordsOf<Learner>(),
                     "How schedules are learned: additive models what each layer's reads are worth "
                     "and tries what may be best, reinforce ascends the policy's gradient (SANTA "
                     "paper, Appendix K), santa is that paper's Algorithm 1 to the letter.")),
      live(
          integer("update.episodesPerUpdate", "10", 2, kMostResults,
                  "Episodes in one update of the policy; learner santa takes all that have arrived "
                  "once they are this many. Leave out the whole section update to learn nothing "
                  "and only measure the evaluation grid.")),
      live(integer("update.maxUpdates", "150", 1, 1000000, "The run ends after this many steps.")),
      derived(choice("update.optimizer", "adam; sgd where spec.update.learner is santa",
                     wordsOf<Optimizer>(),
                     "Rule that turns a gradient into a step: adam scales it per layer by its "
                     "recent size, sgd takes it as it is. Learner additive has none.")),
      derived(live(number("update.learningRate", "0.05; 0.02 where spec.update.learner is santa",
                          {.above_low = true, .high = 10},
                          "Step size on the layers' logits. Learner additive has none."))),
      derived(choice(
          "update.baseline", "leave-one-out; batch-mean where spec.update.learner is santa",
          wordsOf<Baseline>(),
          "Reward that an episode is compared with: the mean of the update's other episodes, "
          "of all of them, or a moving average of earlier updates. Learner additive has none. "
          "An episode of a question set is compared with the mean of the set's others.")),
      live(number("update.entropyBonus", "0", {.high = 10},
                  "Reward per nat of policy entropy; above 0 it keeps the policy from settling "
                  "early. Learner reinforce alone.")),
      derived(live(
          choice("staleness.mode", "truncated-is; none where spec.update.learner is santa",
                 wordsOf<StalenessMode>(),
                 "What is done about results of an older policy. drop refuses those beyond maxLag, "
                 "which is biased against what takes long. Learner reinforce with truncated-is "
                 "weights each by the probability of its schedule under the present policy over "
                 "that under its own; all else takes them as they are."))),
      live(number("staleness.rhoBar", "1", {.above_low = true, .high = 1000},
                  "Largest such weight; higher is less biased and noisier.")),
      live(integer("staleness.maxLag", "4", 0, 1000000,
                   "With mode drop: results more updates old than this are refused.")),
  };
}

std::vector<SpecRule> measuringRules() {
  return {
      live(integer("evaluation.everyUpdates", "25", 0, 1000000,
                   "Updates between two measurements of held-out accuracy; 0 measures only before "
                   "the first and after the last.")),
      orShare(derived(
          integer("evaluation.budgets", "[spec.policy.totalBudget]", 1, kMaxBudget,
                  "Total budgets at which each schedule and method is measured: the x axis of "
                  "the accuracy curve."),
          SpecType::kIntegers)),
      derived(
          choice("evaluation.schedules", "[uniform, learned]; [uniform] without spec.update",
                 namedSchedules(),
                 "Ways to spread a budget over the layers: uniform evenly, learned by the "
                 "policy, measured by what each layer loses alone (spec.policy.measureQuestions), "
                 "oneHot with one layer cut to a single read (once for each layer; oneHot "
                 "reads=0 to as many as it says), or a list such as [4, 2, 1, 1] with the reads "
                 "of each layer."),
          SpecType::kSchedules),
      derived(base("evaluation.methods", SpecType::kMethods, "[dense, spec.attention.decode]",
                   "Methods to measure, with their parameters. Those that read what they need "
                   "(dense, vattention, bernoulli in front of dense) are measured once, without "
                   "schedule or budget.")),
      derived(reading(base("evaluation.prefills", SpecType::kMethods, "[spec.attention.prefill]",
                           "Ways to read the prompts: the whole grid is measured with each."))),
      measured(
          choice("evaluation.measures", "[accuracy]", tableMeasures(),
                 "What is measured, with parameters, as in fidelity questions=64 tile=32. accuracy "
                 "grades whole answers. fidelity compares every attention output and next token "
                 "with dense attention's from the same state (SANTA paper, Appendix U); "
                 "agreement=all-layers, last-layer (the paper's) or each-layer says which layers "
                 "have the method when next tokens are compared. variance takes replicates=16 "
                 "outputs of a method at each prompt's last position (Appendices D, M and N). "
                 "questions=64: held-out questions of fidelity and variance, which compute "
                 "everything more than once. tile=32: keys in a tile, where errors are told apart "
                 "by how many tiles hold 90 % of the attention; the paper's Table 29 has 256.")),
      derived(integer("evaluation.chunkQuestions",
                      "32; less where spec.task.contextTokens is above 8192, so that a chunk is "
                      "262144 tokens",
                      1, kMostChunkQuestions,
                      "Held-out questions that a worker answers together, by all methods and "
                      "schedules in a row: their prompts should fit its memory.")),
      integer("evaluation.repeats", "1", 1, kMostRepeats,
              "How often every cell of the grid is answered, on the same questions with other "
              "draws and, above spec.generation.temperature 0, other tokens. Methods that draw "
              "nothing are measured once at temperature 0, and so is fidelity."),
      choice("evaluation.answers", KeptAnswers::kWrong,
             "Which answers to held-out questions are kept as text, for `allot show question` and "
             "exports: wrong keeps those that a grader scores below 1. At most 64 KiB for 32 "
             "questions and 64 MiB in a run of `maxUpdates`, to which `allot extend` adds; what "
             "has no room is cut short or left out, and counted."),
      live(number("audit.share", "0.02", {.high = 1},
                  "Share of all answers, drawn at random, that a second worker gives again while "
                  "the run goes on, beside a few of the first ones of each worker; 0: none. A "
                  "worker whose scores are not what two others measure is named, and its results "
                  "are refused.")),
      live(number("stop.goal", "\"\"", {.high = 1, .or_empty = true},
                  "End early once the held-out accuracy of spec.attention.decode under the learned "
                  "schedule at spec.policy.totalBudget reaches this share; empty or 0: never.")),
      live(number("stop.maxWorkerHours", "\"\"", {.above_low = true, .or_empty = true},
                  "End once episodes and evaluations took this number of worker hours, summed over "
                  "all workers; evaluations that are open then are withdrawn. Empty: never.")),
  };
}

// A key that was added after the first schema: SpecRule::since and SpecRule::before.
struct Added {
  std::string_view path;
  uint32_t since;
  const char* before;  // YAML
};
constexpr std::array<Added, 0> kAdded = {};

}  // namespace

const std::vector<SpecRule>& specRules() {
  static const std::vector<SpecRule> rules = [] {
    std::vector<SpecRule> all;
    for (auto part : {runRules(), taskRules(), learningRules(), updateRules(), measuringRules()}) {
      std::move(part.begin(), part.end(), std::back_inserter(all));
    }
    for (const Added& added : kAdded) {
      const auto rule = std::find_if(all.begin(), all.end(),
                                     [&](const SpecRule& r) { return r.path == added.path; });
      rule->since = added.since;
      rule->before = added.before;
    }
    return all;
  }();
  return rules;
}

SpecField fieldAt(google::protobuf::Message* message, std::string_view path) {
  for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.')) {
    const auto* section =
        message->GetDescriptor()->FindFieldByCamelcaseName(std::string(path.substr(0, dot)));
    message = message->GetReflection()->MutableMessage(message, section);
    path.remove_prefix(dot + 1);
  }
  return {message, message->GetDescriptor()->FindFieldByCamelcaseName(std::string(path))};
}

SpecField fieldOf(const SpecRule& rule, v1::Spec& spec) {
  return fieldAt(&spec, rule.path.substr(sizeof("spec.") - 1));
}

}  // namespace allot
