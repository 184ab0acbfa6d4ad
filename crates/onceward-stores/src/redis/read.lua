-- Reads records as they are now.
--
-- KEYS  the records
-- ARGV  nothing; or two for each record: an index, and the entry in it that led to the record
--
-- Returns the time in microseconds, then for each record its value, false for nothing, or {'!', error}.
--
-- An entry whose record has expired, or was written again after it had expired, is removed: that is the one change of a
-- record that no script of ours makes. The answer is then false.

if redis.replicate_commands then redis.replicate_commands() end -- the default from Redis 7 on

local time = redis.call('TIME')
local answers = {string.format('%.0f', time[1] * 1000000 + time[2])}
for at, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    value = {'!', value.err}
  elseif #ARGV > 0 then
    local index, entry = ARGV[at * 2 - 1], ARGV[at * 2]
    local stale = not value
    if value and #value >= 28 and string.find(value, '^ow1[whduxg]') then
      local is_here = string.sub(value, 4, 4) == string.sub(index, -1)
      stale = not is_here or string.sub(value, 21, 28) ~= string.sub(entry, 1, 8)
    end
    if stale then
      redis.call('ZREM', index, entry)
      value = false
    end
  end
  answers[at + 1] = value
end
return answers
