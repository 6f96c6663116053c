#include "store/redis/acl.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/digest.h"
#include "core/files/files.h"
#include "store/redis/lua_scripts.h"
#include "store/redis/redis_address.h"

namespace allot {
namespace {

constexpr mode_t kOnlyOurs = 0600;

tl::unexpected<Error> ioFault(const std::string& what, const std::string& path) {
  return fail(ErrorCode::kIo, what + " " + path + " failed (" + std::strerror(errno) +
                                  "): check that its folder can be written");
}

std::string aclText(const std::map<std::string, std::string>& passwords) {
  // Nobody can log in as the default user, which must be allowed everything: Redis 7.0 reads its
  // append-only file as this user and drops each transaction, and thus each script, that the user
  // is not allowed.
  std::string text = "user default off resetpass ~* &* +@all\n";
  for (const AclRole& role : aclRoles()) {
    text += "user " + role.name + " on #" + sha256Hex(passwords.at(role.name)) +
            " resetkeys resetchannels -@all";
    for (const std::string& key : role.keys) text += " " + key;
    for (const std::string& command : role.commands) text += " +" + command;
    text += "\n";
  }
  return text;
}

// Writes users.acl of this build with the folder's passwords.
Status renew(const std::string& folder) {
  std::map<std::string, std::string> passwords;
  for (const AclRole& role : aclRoles()) {
    ALLOT_ASSIGN(passwords[role.name], readPassword(folder + "/" + role.name + ".password"));
  }
  return writeWholeFile(folder + "/users.acl", aclText(passwords), kOnlyOurs);
}

// Writes all files with new passwords into a new folder.
Status fill(const std::string& folder) {
  ALLOT_ASSIGN(const auto passwords, newPasswords());
  for (const auto& [name, content] : accountFiles(passwords)) {
    ALLOT_TRY(writeWholeFile(folder + "/" + name, content, kOnlyOurs));
  }
  return {};
}

bool calls(std::string_view role, const RedisScript& script) {
  return std::find(script.roles.begin(), script.roles.end(), role) != script.roles.end();
}

// Returns the commands of a role: those that it sends itself (`direct`), and those of its scripts.
std::vector<std::string> commandsOf(std::string_view role, std::set<std::string> direct) {
  for (const RedisScript* script : lua::scripts) {
    if (!calls(role, *script)) continue;
    direct.insert({"eval", "evalsha"});
    direct.insert(script->commands.begin(), script->commands.end());
  }
  return {direct.begin(), direct.end()};
}

// Returns the key permissions of a role: the keys of its scripts, and those that it reads itself
// (`read`). EVALSHA counts as writing every key that a script names. The worker has no command that
// could change `seen`, which its scripts only read.
std::vector<std::string> keysOf(std::string_view role, const std::vector<std::string>& read) {
  const auto pattern = [](std::string_view key) {
    return (key.starts_with("allot:") ? "" : "allot:{*}:") + std::string(key);
  };
  std::set<std::string> keys;
  for (const RedisScript* script : lua::scripts) {
    if (!calls(role, *script)) continue;
    for (const ScriptKey& key : script->keys) {
      for (const std::string_view name : key.names()) keys.insert("~" + pattern(name));
    }
  }
  for (const std::string& key : read)
    if (!keys.contains("~" + pattern(key))) keys.insert("%R~" + pattern(key));
  return {keys.begin(), keys.end()};
}

}  // namespace

// Aggregator and reader have all keys, those of other builds, too. No command of the reader writes.
const std::vector<AclRole>& aclRoles() {
  static const std::vector<AclRole> roles = {
      {"worker",
       keysOf("worker",
              {"allot:index", "spec", "control", "policy", "news", "unit_specs", "audits"}),
       commandsOf("worker", {"hget", "hmget", "xread"})},
      {"aggregator",
       {"~allot:*"},
       commandsOf("aggregator", {"get", "getrange", "hget", "hgetall", "hlen", "hmget", "hvals",
                                 "info", "xlen", "xread", "xrevrange"})},
      {"admin",
       {},
       {"acl|load", "acl|whoami", "client|kill", "client|list", "info", "ping", "script|kill"}},
      {"reader",
       {"~allot:*"},
       commandsOf("reader", {"get", "getrange", "hget", "hgetall", "hlen", "hmget", "hvals", "ping",
                             "xlen", "xrevrange"})},
  };
  return roles;
}

Result<std::map<std::string, std::string>> newPasswords() {
  std::map<std::string, std::string> passwords;
  for (const AclRole& role : aclRoles()) {
    ALLOT_ASSIGN(passwords[role.name], randomHex(32));
  }
  return passwords;
}

std::map<std::string, std::string> accountFiles(
    const std::map<std::string, std::string>& passwords) {
  std::map<std::string, std::string> files = {{"users.acl", aclText(passwords)}};
  for (const auto& [role, password] : passwords) files[role + ".password"] = password + "\n";
  return files;
}

Status writeAcl(const std::string& folder) {
  std::string target = folder;
  while (target.size() > 1 && target.ends_with('/')) target.pop_back();
  if (target.empty()) return badInput("the folder for the ACL file has no name: give it one");
  std::error_code none;
  if (std::filesystem::exists(target + "/users.acl", none)) return renew(target);
  // Made beside `target` and renamed: a folder that is not empty stays as it is, and no process
  // sees a part of the files.
  std::filesystem::create_directories(std::filesystem::path(target).parent_path(), none);
  std::string making = target + ".XXXXXX";
  if (mkdtemp(making.data()) == nullptr) return ioFault("making a folder beside", target);
  Status done = fill(making);
  if (done && std::rename(making.c_str(), target.c_str()) != 0) {
    const bool taken = errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR;
    done = taken ? Status(badInput(target + " is there already: name another folder, or move this "
                                            "one away if its passwords are not in use"))
                 : Status(ioFault("making", target));
  }
  if (done) return syncFolderOf(target);
  std::error_code ignored;
  std::filesystem::remove_all(making, ignored);
  return done;
}

}  // namespace allot
