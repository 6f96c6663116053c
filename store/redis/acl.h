#pragma once
// The Redis accounts of an experiment: what each may do, as a Redis ACL file (Redis 7 or newer:
// older ones have no key permissions). Used by the command line; any thread.
//
// Redis runs a script as the user who calls it, so a user needs every command that its scripts use,
// on every key that they name: both come from the first lines of store/redis/lua/*.lua.
// tests/store/test_acl.cpp holds the commands to exactly what is needed.
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

// worker; aggregator, which the people's commands that change a run use, too (pause, import, ...);
// reader, which changes nothing and answers health checks (PING). Nobody administers the server:
// its configuration file and signals do that.
const std::vector<AclRole>& aclRoles();

// The ACL file, which has only the passwords' SHA-256. passwords: by role. The default user is off.
std::string aclText(const std::map<std::string, std::string>& passwords);

// Passwords of 256 random bits, by role.
Result<std::map<std::string, std::string>> newPasswords();
// users.acl, worker.password, aggregator.password and reader.password by name, as processes read
// them.
std::map<std::string, std::string> accountFiles(
    const std::map<std::string, std::string>& passwords);

// Makes such passwords and the folder with users.acl, worker.password,
// aggregator.password and reader.password, readable by their owner only. All of it or nothing. A
// folder that has accounts keeps their passwords and gets the users.acl of this build, which may
// allow more than an older one's; kUsage if it holds anything else.
Status writeAcl(const std::string& folder);

}  // namespace allot
