#pragma once
// Every suite there is; each in a file of its own. Functions without state: any thread.
#include "worker/tasks/suite.h"

namespace allot {

Suite recallSuite();         // recall.cpp
Suite rulerSuite();          // ruler.cpp, ruler_files.cpp
Suite gsm8kSuite();          // gsm8k.cpp
Suite mmluSuite();           // mmlu.cpp
Suite longbenchSuite();      // longbench.cpp
Suite longbenchV1Suite();    // longbench_v1.cpp
Suite infinitebenchSuite();  // infinitebench.cpp
Suite humanevalSuite();      // humaneval.cpp
Suite jsonlSuite();          // jsonl.cpp

}  // namespace allot
