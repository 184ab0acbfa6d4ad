-- Swaps a batch of records. Each swap is decided and written by itself; nothing else runs in between.
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
-- Indexes are written before the record: the first write is the one that can be refused, by a key of another type or
-- by a server without memory.

if redis.replicate_commands then redis.replicate_commands() end -- the default from Redis 7 on

local NEVER = string.rep('\255', 8)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last_versions, changed = {}, {}

local function text(number) return string.format('%.0f', number) end

local function failed(reply) return type(reply) == 'table' and reply.err and {'!', reply.err} end

-- Whether this is a record of ours: the format, and a state.
local function is_record(value) return #value >= 28 and string.find(value, '^ow1[whduxg]') end

local function index(base, state) return base .. 'i:' .. state end

local function swap(key, base, id, seen, state, due_in, kept_ms, parent, receipt)
  local there = redis.pcall('GET', key)
  if failed(there) then return failed(there) end
  if there and not is_record(there) then return {there} end
  local version, created
  if there then version, created = struct.unpack('>I8I8', there, 5) end
  local seen_now = version and text(version) or ''
  if seen ~= seen_now then return there and {there} or false end

  local last = last_versions[base]
  if not last then
    last = redis.pcall('GET', base .. 'v')
    if failed(last) then return failed(last) end
    last = tonumber(last or '0') or 0
  end
  local next_version = math.max(now, last + 1)

  local old_member = there and string.sub(there, 21, 28) .. id
  local old_index = there and index(base, string.sub(there, 4, 4))
  if state ~= '' then
    local due = due_in == '' and NEVER or struct.pack('>I8', now + tonumber(due_in))
    local member = due .. id
    local new_index = index(base, state)
    local added = redis.pcall('ZADD', new_index, 0, member)
    if failed(added) then return failed(added) end
    if parent ~= '' and not there then
      added = redis.pcall('ZADD', base .. 's:' .. parent, 0, id)
      if failed(added) then
        redis.call('ZREM', new_index, member)
        return failed(added)
      end
    end
    if old_member and (old_index ~= new_index or old_member ~= member) then
      redis.call('ZREM', old_index, old_member)
    end
    local value = 'ow1' .. state .. struct.pack('>I8I8', next_version, created or next_version) .. due .. receipt
    if kept_ms ~= '' and due_in ~= '' then
      local expires_ms = math.floor((now + tonumber(due_in)) / 1000) + tonumber(kept_ms)
      redis.call('SET', key, value, 'PXAT', text(expires_ms))
    else
      redis.call('SET', key, value)
    end
  elseif there then
    redis.call('ZREM', old_index, old_member)
    if parent ~= '' then redis.call('ZREM', base .. 's:' .. parent, id) end
    redis.call('DEL', key)
  end
  last_versions[base] = next_version
  changed[#changed + 1] = struct.pack('>I2', #id) .. id
  return text(next_version)
end

local answers = {text(now)}
for at, key in ipairs(KEYS) do
  local from = (at - 1) * 8 + 1
  answers[at + 1] = swap(key, unpack(ARGV, from + 1, from + 8))
end
for base, version in pairs(last_versions) do
  redis.call('SET', base .. 'v', text(version))
end
-- A hint: a user without the right to publish has written all the same.
if #changed > 0 then redis.pcall('PUBLISH', ARGV[1], table.concat(changed)) end
return answers
