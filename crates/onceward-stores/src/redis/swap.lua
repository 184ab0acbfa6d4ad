-- Swaps a batch of records of one bucket, each of them for itself. Nothing else runs in between.
--
-- KEYS     the record of each swap
-- ARGV[1]  how the bucket's keys begin
-- ARGV[2]  the channel for changed ids
-- ARGV[3]  the message that says that all ids of the batch have changed
-- then groups of swaps that write alike, in the order of the keys. A group has five arguments:
--   how many they are
--   the new state ('' removes)
--   microseconds until it is due ('' for never)
--   milliseconds for which Redis keeps it after that ('' for until it is removed)
--   its kind: 'a' in it if the records must be absent, 's' in it if they are steps
-- and then for each of its swaps:
--   the version that was seen (8 bytes), unless absent
--   the parent, if they are steps
--   the receipt, unless they are removed
--
-- Returns the time in microseconds, the version of what won and how many won, then two for each swap that did not win: its
-- place in the batch, from 0, and {what is there}, or false for nothing, if it lost; {'!', error} if it failed, and then
-- nothing of it was written.
--
-- What records have in common is sent, made and written once: a command, an argument and a text in Lua each cost about as
-- much as what is done with a record. Indexes are written before records: the first write is the one that can be refused,
-- by a key of another type or by a server without memory.

if redis.replicate_commands then redis.replicate_commands() end -- the default from Redis 7 on

local NEVER = string.rep('\255', 8)
-- How a record of ours begins: the format and a state.
local STATES = {ow1w = 'w', ow1h = 'h', ow1d = 'd', ow1u = 'u', ow1x = 'x', ow1g = 'g'}
local HEADER = 5
local sub = string.sub

local function text(number) return string.format('%.0f', number) end

local function failed(reply) return type(reply) == 'table' and reply.err and {'!', reply.err} end

local base, channel, message = ARGV[1], ARGV[2], ARGV[3]
local id_at = #base + #'r:' + 1
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last = redis.pcall('GET', base .. 'v')
local unusable = failed(last)
local version = math.max(now, (tonumber(not unusable and last or '') or 0) + 1)
local version_bytes = struct.pack('>I8', version)
local answer, refused, refused_count = {text(now), text(version), 0}, {}, 0

-- The swap at this place did not win.
local function refuse(place, why)
  refused[place] = true
  refused_count = refused_count + 1
  answer[#answer + 1] = place - 1
  answer[#answer + 1] = why
end

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

-- Swaps a group: those after this place, with arguments after this one. Returns the number of arguments of each.
local function swap(place, count, from, state, due_in, kept_ms, absent, steps)
  local fields = (absent and 0 or 1) + (steps and 1 or 0) + (state and 1 or 0)
  local keys = {unpack(KEYS, place + 1, place + count)}
  local values, errors = {}, {}
  -- What should be absent usually is.
  if not absent or redis.call('EXISTS', unpack(keys)) > 0 then values, errors = read(keys) end

  local index = state and base .. 'i:' .. state
  local due = state and (due_in == '' and NEVER or struct.pack('>I8', now + tonumber(due_in)))
  local winners, added = {}, {index}
  for at, key in ipairs(keys) do
    local there, seen = values[at], not absent and ARGV[from + (at - 1) * fields + 1]
    local error = unusable or errors[at]
    if error then
      refuse(place + at, error)
    elseif not there and seen then
      refuse(place + at, false)
    elseif there and not (seen == sub(there, 5, 12) and #there >= 28 and STATES[sub(there, 1, 4)]) then
      refuse(place + at, {there})
    else
      winners[#winners + 1] = at
      if index then
        added[#added + 1] = '0'
        added[#added + 1] = due .. sub(key, id_at)
      end
    end
  end
  if #winners == 0 then return fields end
  local error = index and failed(redis.pcall('ZADD', unpack(added)))
  if error then
    for _, at in ipairs(winners) do refuse(place + at, error) end
    return fields
  end

  local head, tail = state and 'ow1' .. state .. version_bytes, due
  local head_of_new = state and head .. version_bytes .. due
  local set, gone, removed = {}, {}, {}
  local expires_ms = state and kept_ms ~= '' and due_in ~= ''
    and text(math.floor((now + tonumber(due_in)) / 1000) + tonumber(kept_ms))
  for number, at in ipairs(winners) do
    local key, there, last_arg = keys[at], values[at], from + at * fields
    local parent = steps and base .. 's:' .. ARGV[state and last_arg - 1 or last_arg]
    local error = parent and state and not there and failed(redis.pcall('ZADD', parent, '0', sub(key, id_at)))
    if error then
      redis.call('ZREM', index, added[number * 2 + 1])
      refuse(place + at, error)
    else
      if there then
        local old_state, old = sub(there, 4, 4), sub(there, 21, 28) .. sub(key, id_at)
        if old_state ~= state or old ~= added[number * 2 + 1] then
          local entries = removed[old_state]
          if not entries then
            entries = {base .. 'i:' .. old_state}
            removed[old_state] = entries
          end
          entries[#entries + 1] = old
        end
      end
      if state then
        local value = (there and head .. sub(there, 13, 20) .. due or head_of_new) .. ARGV[last_arg]
        if expires_ms then
          redis.call('SET', key, value, 'PXAT', expires_ms)
        else
          set[#set + 1] = key
          set[#set + 1] = value
        end
      elseif there then
        if parent then redis.pcall('ZREM', parent, sub(key, id_at)) end
        gone[#gone + 1] = key
      end
    end
  end
  if #set > 0 then redis.call('MSET', unpack(set)) end
  if #gone > 0 then redis.call('DEL', unpack(gone)) end
  -- An entry that is left in an index of another type is removed when it is read.
  for _, entries in pairs(removed) do redis.pcall('ZREM', unpack(entries)) end
  return fields
end

local place, from = 0, 3
while place < #KEYS do
  local count, state, due_in, kept_ms, kind = unpack(ARGV, from + 1, from + HEADER)
  from = from + HEADER
  state = state ~= '' and state
  local fields =
    swap(place, count, from, state, due_in, kept_ms, string.find(kind, 'a'), string.find(kind, 's'))
  place, from = place + count, from + count * fields
end

answer[3] = #KEYS - refused_count
if answer[3] > 0 then
  redis.call('SET', base .. 'v', answer[2])
  if refused_count > 0 then
    local changed = {}
    for at, key in ipairs(KEYS) do
      local id = sub(key, id_at)
      if not refused[at] then changed[#changed + 1] = struct.pack('>I2', #id) .. id end
    end
    message = table.concat(changed)
  end
  -- A hint: a user without the right to publish has written all the same.
  redis.pcall('PUBLISH', channel, message)
end
return answer
