#include "store/redis/acl.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/digest.h"
#include "files/files.h"
#include "store/redis/redis_address.h"

namespace allot {
namespace {

constexpr mode_t kOnlyOurs = 0600;

tl::unexpected<Error> ioFault(const std::string& what, const std::string& path) {
  return fail(ErrorCode::kIo, what + " " + path + " failed (" + std::strerror(errno) +
                                  "): check that its folder can be written");
}

Result<std::string> newPassword() {
  std::array<unsigned char, 32> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return fail(ErrorCode::kInternal, "the system gives no random numbers: try again");
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

// The users' rights as this build wants them, under the passwords that they have.
Status renew(const std::string& folder) {
  std::map<std::string, std::string> passwords;
  for (const AclRole& role : aclRoles()) {
    ALLOT_ASSIGN(passwords[role.name], readPassword(folder + "/" + role.name + ".password"));
  }
  return writeWholeFile(folder + "/users.acl", aclText(passwords), kOnlyOurs);
}

// Fills a folder that is nobody's yet.
Status fill(const std::string& folder) {
  std::map<std::string, std::string> passwords;
  for (const AclRole& role : aclRoles()) {
    ALLOT_ASSIGN(passwords[role.name], newPassword());
    ALLOT_TRY(writeWholeFile(folder + "/" + role.name + ".password", passwords[role.name] + "\n",
                             kOnlyOurs));
  }
  return writeWholeFile(folder + "/users.acl", aclText(passwords), kOnlyOurs);
}

}  // namespace

const std::vector<AclRole>& aclRoles() {
  static const std::vector<AclRole> roles = {
      // EVALSHA counts as writing every key that a script names, `seen` among them, which the
      // worker only reads: it has no command that could change a set.
      {"worker",
       {"%R~allot:index",        "%R~allot:{*}:spec",      "%R~allot:{*}:control",
        "%R~allot:{*}:policy",   "~allot:{*}:model",       "~allot:{*}:tickets",
        "~allot:{*}:reissue",    "~allot:{*}:inbox",       "~allot:{*}:seen",
        "~allot:{*}:pending",    "~allot:{*}:units",       "~allot:{*}:unit_groups",
        "~allot:{*}:unit_specs", "~allot:{*}:units_done",  "~allot:{*}:eval",
        "~allot:{*}:workers",    "~allot:{*}:beats",       "~allot:{*}:unit_holders",
        "~allot:{*}:free_units", "~allot:{*}:free_groups", "~allot:{*}:news"},
       {"eval",   "evalsha", "get",         "hdel",          "hexists", "hget",  "hmget", "hset",
        "incrby", "setnx",   "sismember",   "time",          "xadd",    "xlen",  "xread", "zadd",
        "zcard",  "zpopmin", "zrangebylex", "zrangebyscore", "zrem",    "zscore"}},
      {"aggregator",
       {"~allot:*"},
       {"del",    "eval",    "evalsha",   "exists", "get",   "hdel",         "hexists",
        "hget",   "hgetall", "hincrby",   "hmget",  "hset",  "hvals",        "info",
        "sadd",   "set",     "time",      "unlink", "xadd",  "xdel",         "xlen",
        "xrange", "xread",   "xrevrange", "zadd",   "zcard", "zrangebyscore"}},
      {"reader",
       {"~allot:*"},
       {"eval", "evalsha", "get", "hget", "hgetall", "hmget", "hvals", "ping", "time", "xlen",
        "xrange", "xrevrange", "zcard", "zrangebyscore"}},
  };
  return roles;
}

std::string aclText(const std::map<std::string, std::string>& passwords) {
  // Nobody can be the default user. Yet it must be allowed everything: Redis 7.0 reads its
  // append-only file as this user and throws away each transaction, and every script is one, that
  // the user may not do.
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

Status writeAcl(const std::string& folder) {
  std::string target = folder;
  while (target.size() > 1 && target.ends_with('/')) target.pop_back();
  if (target.empty()) return badInput("the folder for the ACL file has no name: give it one");
  std::error_code none;
  if (std::filesystem::exists(target + "/users.acl", none)) return renew(target);
  // Made beside it and renamed: a folder that is not empty stays as it is, and nobody ever sees
  // half of this one.
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
