#include "core/files/experiment_files.h"

#include <filesystem>

#include "core/files/files.h"
#include "core/spec/prefill_profile.h"

namespace allot {

Result<std::string> findNamedPath(const std::string& key, const std::string& path,
                                  const std::string& experiment_file) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (path.empty() || fs::exists(path, ignored)) return path;
  if (fs::path(path).is_relative() && !experiment_file.empty()) {
    fs::path folder = fs::absolute(experiment_file, ignored).parent_path();
    for (; !folder.empty(); folder = folder.parent_path()) {
      if (fs::exists(folder / path, ignored)) return (folder / path).string();
      if (folder == folder.root_path()) break;
    }
  }
  return badInput(key + ": there is no " + path +
                  ": name a file or folder, absolute or relative to where you are or to a folder "
                  "above the experiment file");
}

Status embedProfile(v1::Experiment* experiment, const std::string& experiment_file) {
  std::string* const named =
      experiment->mutable_spec()->mutable_attention()->mutable_prefill_profile();
  if (named->empty() || isProfileText(*named)) return {};
  ALLOT_ASSIGN(const std::string path, findNamedPath(kProfileKey, *named, experiment_file));
  const auto text = readWholeFile(path, kMostProfileBytes);
  if (!text) return badInput(std::string(kProfileKey) + ": " + text.error().message);
  ALLOT_ASSIGN(const PrefillProfile profile, parseProfile(*text, path));
  *named = profileText(profile);
  return {};
}

}  // namespace allot
