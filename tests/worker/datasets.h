#pragma once
// The tokenizer of recall-7m, and what the tests of tasks read out of a text with it.
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "worker/tasks/task.h"

namespace allot {

inline const Tokenizer& tokenizer() {
  static const Tokenizer loaded =
      Tokenizer::load(ALLOT_SOURCE_DIR "/experiments/models/recall-7m/tokenizer.json").value();
  return loaded;
}

// Returns a task of a generated suite.
inline v1::Task generatedTask(const std::string& suite, const std::vector<std::string>& tasks,
                              uint32_t context_tokens, uint32_t train, uint32_t held_out,
                              uint32_t max_new_tokens) {
  v1::Task task;
  task.set_suite(suite);
  for (const std::string& name : tasks) task.add_tasks(name);
  task.set_context_tokens(context_tokens);
  task.set_train_questions(train);
  task.set_held_out_questions(held_out);
  task.set_max_new_tokens(max_new_tokens);
  return task;
}

// Returns `count` lines of JSON, each made of its number.
inline std::string jsonLines(int count, const std::function<nlohmann::json(int)>& line) {
  std::string text;
  for (int i = 0; i < count; ++i) text += line(i).dump() + "\n";
  return text;
}

// Returns the last number of a message, which it advises.
inline uint32_t advised(const std::string& message) {
  return static_cast<uint32_t>(std::stoul(message.substr(message.rfind(' ') + 1)));
}

// Returns the first group of each match of `pattern` in the text.
inline std::vector<std::string> found(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::vector<std::string> all;
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it) {
    all.push_back((*it)[1]);
  }
  return all;
}

}  // namespace allot
