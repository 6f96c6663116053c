#pragma once
// What is read beside a model: experiment files, files of questions, a run's folder and its export,
// fed to the readers that take them from strangers.
#include <cstddef>
#include <cstdint>

namespace allot::fuzz {

// The first byte says what the rest is:
//   'e' an experiment file; 'p' a profile; 'r' run.json
//   'q' questions, JSON lines or a JSON array, to every suite that reads such; 'm' MMLU's CSV;
//   'b' those of the benchmarks of long contexts that are a folder, as tasks of each kind
//   'x' export.json, 'h' history.jsonl, 'v' evaluations.jsonl of an export that is sound otherwise:
//       the edits of the sound file, each a place (4 bytes), how many bytes go (1), how many come
//       (1), and these
// What is accepted is used as the program uses it, and what is refused is so by one line that a
// terminal can show, with exit code 64 or 65. Returns whether it was accepted; aborts if it does
// harm.
bool feedInputFile(const uint8_t* data, size_t size);

}  // namespace allot::fuzz
