#pragma once
// The Lua scripts of store/lua, embedded at build time (embed_lua.cmake). Constants, any thread.
//
// Every script that writes more than one key is here, because Redis runs a script as a whole and
// writes it to its log as a whole. Keys and arguments are described at the top of each file.
#include "store/redis_connection.h"

namespace allot::lua {

extern const RedisScript acquire_lease;
extern const RedisScript agree_on_model;
extern const RedisScript beat;
extern const RedisScript begin_import;
extern const RedisScript change_control;
extern const RedisScript claim_units;
extern const RedisScript commit_update;
extern const RedisScript count_tickets;
extern const RedisScript create_run;
extern const RedisScript end_import;
extern const RedisScript import_evaluations;
extern const RedisScript import_history;
extern const RedisScript leave;
extern const RedisScript list_units;
extern const RedisScript list_workers;
extern const RedisScript name_run;
extern const RedisScript plan_units;
extern const RedisScript publish_initial;
extern const RedisScript push_evaluation;
extern const RedisScript push_result;
extern const RedisScript read_bounded;
extern const RedisScript read_entries;
extern const RedisScript read_history;
extern const RedisScript read_lease;
extern const RedisScript reissue_ticket;
extern const RedisScript reject;
extern const RedisScript reject_evaluation;
extern const RedisScript release_lease;
extern const RedisScript release_units;
extern const RedisScript replace_run;
extern const RedisScript reset_tickets;
extern const RedisScript take_tickets;
extern const RedisScript update_index;
extern const RedisScript withdraw_units;
extern const RedisScript write_fenced;
extern const RedisScript write_state;

}  // namespace allot::lua
