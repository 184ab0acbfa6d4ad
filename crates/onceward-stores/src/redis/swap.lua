-- Swaps a batch of records, each of them for itself. Nothing else runs in between.
--
-- KEYS     the record of each swap
-- ARGV[1]  the channel for changed ids
-- then eight for each swap: the start of its bucket's keys, the id, the version that was seen ('' for none), the
-- new state ('' removes), microseconds until it is due ('' for never), milliseconds for which Redis keeps it after
-- that ('' for until it is removed), the parent of a step ('' for none), the receipt
--
-- Returns the time in microseconds, then for each swap: its version if it won; {what is there}, or false for nothing, if
-- it lost; {'!', error} if it failed, and then nothing of it was written.
--
-- All records are read by one command and written by one, because a command costs more than what it does. Indexes are
-- written before the records: the first write is the one that can be refused, by a key of another type or by a server
-- without memory.

if redis.replicate_commands then redis.replicate_commands() end -- the default from Redis 7 on

local NEVER = string.rep('\255', 8)
local FIELDS = 8
local count = #KEYS
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local answers = {}

local function text(number) return string.format('%.0f', number) end

local function failed(reply) return type(reply) == 'table' and reply.err and {'!', reply.err} end

-- Whether this is a record of ours: the format, and a state.
local function is_record(value) return #value >= 28 and string.find(value, '^ow1[whduxg]') end

-- What the keys hold, and the errors of those that hold no text.
local function read(keys)
  local values, errors, missing = redis.call('MGET', unpack(keys)), {}, {}
  for at, key in ipairs(keys) do
    if not values[at] then missing[#missing + 1] = key end
  end
  -- A key of another type looks like a missing one.
  if #missing > 0 and redis.call('EXISTS', unpack(missing)) > 0 then
    for at, key in ipairs(keys) do
      if not values[at] then errors[at] = failed(redis.pcall('GET', key)) end
    end
  end
  return values, errors
end

-- The arguments of one command for each key.
local function put(commands, key, ...)
  local arguments = commands[key]
  if not arguments then
    arguments = {key}
    commands[key] = arguments
  end
  for _, argument in ipairs({...}) do arguments[#arguments + 1] = argument end
end

-- The records, then the last version of each bucket.
local keys, bases, base_at = {}, {}, {}
for at = 1, count do keys[at] = KEYS[at] end
for at = 1, count do
  local base = ARGV[(at - 1) * FIELDS + 2]
  if not base_at[base] then
    bases[#bases + 1] = base
    keys[#keys + 1] = base .. 'v'
    base_at[base] = #keys
  end
end
local values, errors = read(keys)
local last_versions = {}

-- Decides about each, without writing. What won is in `won`.
local won, added = {}, {}
for at = 1, count do
  local from = (at - 1) * FIELDS + 1
  local base, id, seen, state, due_in, kept_ms, parent, receipt = unpack(ARGV, from + 1, from + FIELDS)
  local there = values[at]
  local error = errors[at] or errors[base_at[base]]
  local version, created
  if not error and there and is_record(there) then
    version, created = struct.unpack('>I8I8', there, 5)
  end
  if error then
    answers[at] = error
  elseif (there and not version) or seen ~= (version and text(version) or '') then
    answers[at] = there and {there} or false
  else
    local last = last_versions[base] or tonumber(values[base_at[base]] or '0') or 0
    local next_version = math.max(now, last + 1)
    last_versions[base] = next_version
    local swap = {at = at, base = base, id = id, parent = parent, version = next_version, there = there}
    if there then
      swap.old_index, swap.old_member = base .. 'i:' .. string.sub(there, 4, 4), string.sub(there, 21, 28) .. id
    end
    if state ~= '' then
      local due = due_in == '' and NEVER or struct.pack('>I8', now + tonumber(due_in))
      swap.index, swap.member = base .. 'i:' .. state, due .. id
      swap.value = 'ow1' .. state .. struct.pack('>I8I8', next_version, created or next_version) .. due .. receipt
      if kept_ms ~= '' and due_in ~= '' then
        swap.expires_ms = math.floor((now + tonumber(due_in)) / 1000) + tonumber(kept_ms)
      end
      put(added, swap.index, 0, swap.member)
    end
    won[#won + 1] = swap
  end
end

local refused = {}
for index, arguments in pairs(added) do
  refused[index] = failed(redis.pcall('ZADD', unpack(arguments)))
end

local removed, set, gone, changed, versions = {}, {}, {}, {}, {}
for _, swap in ipairs(won) do
  local error = swap.index and refused[swap.index]
  local steps = swap.parent ~= '' and swap.base .. 's:' .. swap.parent
  if not error and swap.index and steps and not swap.there then
    error = failed(redis.pcall('ZADD', steps, 0, swap.id))
    if error then redis.call('ZREM', swap.index, swap.member) end
  end
  if error then
    answers[swap.at] = error
  else
    if swap.old_index and (swap.old_index ~= swap.index or swap.old_member ~= swap.member) then
      put(removed, swap.old_index, swap.old_member)
    end
    local key = KEYS[swap.at]
    if swap.expires_ms then
      redis.call('SET', key, swap.value, 'PXAT', text(swap.expires_ms))
    elseif swap.index then
      set[#set + 1] = key
      set[#set + 1] = swap.value
    elseif swap.there then
      if steps then put(removed, steps, swap.id) end
      gone[#gone + 1] = key
    end
    versions[swap.base] = swap.version
    changed[#changed + 1] = struct.pack('>I2', #swap.id) .. swap.id
    answers[swap.at] = text(swap.version)
  end
end
for base, version in pairs(versions) do
  set[#set + 1] = base .. 'v'
  set[#set + 1] = text(version)
end
if #set > 0 then redis.call('MSET', unpack(set)) end
if #gone > 0 then redis.call('DEL', unpack(gone)) end
-- An entry that is left in an index of another type is removed when it is read.
for index, arguments in pairs(removed) do redis.pcall('ZREM', unpack(arguments)) end
-- A hint: a user without the right to publish has written all the same.
if #changed > 0 then redis.pcall('PUBLISH', ARGV[1], table.concat(changed)) end

local answer = {text(now)}
for at = 1, count do answer[at + 1] = answers[at] end
return answer
