#pragma once
// The Redis accounts of an experiment and their permissions, as a Redis ACL file (Redis 7 or newer:
// older ones have no key permissions). Used by the command line; any thread.
//
// Redis runs a script as the user that calls it. A user therefore needs every command of its
// scripts, on every key that they name. Both come from the first lines of store/redis/lua/*.lua.
// tests/store/test_acl.cpp checks that no command is missing or superfluous.
#include <map>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

struct AclRole {
  std::string name;
  std::vector<std::string> keys;      // Redis 7 key permissions: ~pattern, %R~pattern
  std::vector<std::string> commands;  // in lower case
};

// Returns the roles: worker; aggregator, which commands that change a run use, too (pause, import,
// ...); reader, which changes nothing and answers health checks (PING). No role administers the
// server: its configuration file and signals do that.
const std::vector<AclRole>& aclRoles();

// Returns the ACL file, which has only the SHA-256 of passwords. passwords: by role. The default
// user is off.
std::string aclText(const std::map<std::string, std::string>& passwords);

// Returns passwords of 256 random bits, by role.
Result<std::map<std::string, std::string>> newPasswords();
// Returns the files users.acl, worker.password, aggregator.password and reader.password, by name,
// in the form that processes read.
std::map<std::string, std::string> accountFiles(
    const std::map<std::string, std::string>& passwords);

// Writes new passwords and users.acl into the folder, as four files that only the owner can read.
// It writes all of them or none. A folder that already has accounts keeps its passwords and gets
// the users.acl of this build, whose permissions may be wider than an older one's. kUsage if the
// folder has other files.
Status writeAcl(const std::string& folder);

}  // namespace allot
