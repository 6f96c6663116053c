#pragma once
// Archive: a fixture with a small run in memory and a folder to export it to.

#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "allot/v1/archive.pb.h"
#include "core/spec/spec_change.h"
#include "store/archive/archive.h"
#include "store/archive/exact_json.h"
#include "store/memory/memory_store.h"
#include "tests/results.h"
#include "tests/store/small_run.h"
#include "tests/temp_folder.h"

namespace allot::test {

inline constexpr char kRunId[] = "01M7YCD2AZVZVPGCPCSFDWQWNZ";

inline void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) all.push_back(line);
  return all;
}

class Archive : public testing::Test {
 protected:
  TempFolder temp_;
  const std::string folder_ = temp_.path();
  const std::string out_ = folder_ + "/out";

  Archive() {
    store_ = openMemoryStore(std::make_shared<MemoryServer>([] { return uint64_t{1}; }));
  }

  // Seven updates; the first evaluation done, the second begun.
  void makeRun() {
    run_ = std::make_unique<SmallRun>(store_.get());
    run_->evaluate(4);
    run_->update(6);
    run_->planEvaluation();
    run_->evaluate(1);
    run_->update();
  }
  Status exportTo(const std::string& folder) {
    StoreSource source(store_.get(), kRunId);
    const auto done = exportRun(&source, folder);
    if (!done) return tl::unexpected(done.error());
    summary_ = *done;
    return {};
  }
  static Result<VerifySummary> verify(const std::string& folder) {
    auto reader = ArchiveReader::open(folder);
    if (!reader) return tl::unexpected(reader.error());
    return verifyRun(reader->get());
  }
  static Result<VerifySummary> import(const std::string& folder, Store* store) {
    auto reader = ArchiveReader::open(folder);
    if (!reader) return tl::unexpected(reader.error());
    return importRun(reader->get(), store);
  }
  static void changeLearningRate(Store* store, const std::string& rate) {
    Control control = valueOf(valueOf(store->readControl()));
    control.experiment = *withSettings(control.experiment, {"spec.update.learningRate=" + rate});
    ASSERT_TRUE(store->changeControl(control).value());
  }
  static std::unique_ptr<Store> emptyStore() {
    return openMemoryStore(std::make_shared<MemoryServer>([] { return uint64_t{1}; }));
  }

  // What verify says of the export once `change` has been at the record of `version`.
  std::string afterChanging(uint64_t version,
                            const std::function<void(v1::IterationRecord*)>& change) {
    const std::string path = out_ + "/history.jsonl";
    const std::string before = readFile(path);
    std::string after;
    for (const std::string& line : lines(before)) {
      v1::IterationRecord record;
      EXPECT_TRUE(parseExactJson(line, &record));
      if (record.version() == version) change(&record);
      if (record.version() != 0) after += *exactJson(record) + "\n";
    }
    EXPECT_NE(after, before);
    write(path, after);
    const auto verified = verify(out_);
    auto store = emptyStore();
    EXPECT_EQ(import(out_, store.get()).has_value(), verified.has_value());
    EXPECT_EQ(store->readSpec()->has_value(), verified.has_value());
    write(path, before);
    EXPECT_TRUE(verify(out_));
    if (verified) return "verified";
    EXPECT_EQ(verified.error().code, ErrorCode::kData);
    return verified.error().message;
  }

  using Results = std::vector<v1::EvaluationResult>;
  // What verify says of the export once a careful editor, who writes new digests, has been at its
  // evaluations and at its head.
  std::string afterEditing(const std::function<void(Results*, v1::RunExport*)>& edit) {
    const std::string path = out_ + "/evaluations.jsonl", head_path = out_ + "/export.json";
    const std::string before = readFile(path), head_before = readFile(head_path);
    Results results;
    for (const std::string& line : lines(before)) {
      EXPECT_TRUE(parseExactJson(line, &results.emplace_back()));
    }
    v1::RunExport head;
    EXPECT_TRUE(parseExactJson(head_before, &head));
    edit(&results, &head);
    archive::ChainDigest digest;
    std::string after;
    for (const v1::EvaluationResult& result : results) {
      digest.add(result);
      after += *exactJson(result) + "\n";
    }
    head.set_evaluations(results.size());
    head.set_evaluations_sha256(digest.hex());
    write(path, after);
    write(head_path, *exactJson(head));
    const auto verified = verify(out_);
    auto store = emptyStore();
    EXPECT_EQ(import(out_, store.get()).has_value(), verified.has_value());
    EXPECT_EQ(store->readSpec()->has_value(), verified.has_value());
    write(path, before);
    write(head_path, head_before);
    if (!verified) return verified.error().message;
    std::string text = "verified";
    for (const auto& [cell, units] : verified->missing) {
      text += " " + std::to_string(cell.first) + ":" + cell.second + ":" + std::to_string(units);
    }
    return text;
  }

  std::unique_ptr<Store> store_;
  std::unique_ptr<SmallRun> run_;
  ExportSummary summary_;
};

}  // namespace allot::test
