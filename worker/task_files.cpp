#include "worker/task_files.h"

#include <filesystem>

namespace allot {

Result<std::string> findTaskPath(const std::string& key, const std::string& path,
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

}  // namespace allot
