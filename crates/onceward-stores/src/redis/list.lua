-- Reads a stretch of each index, in order.
--
-- KEYS     the indexes
-- ARGV[1]  where to begin, as ZRANGEBYLEX takes it
-- ARGV[2]  'now' for what is due by now, '' for everything
-- ARGV[3]  entries of each index, at most
--
-- Returns a list of entries for each index.

local last = '+'
if ARGV[2] == 'now' then
  local time = redis.call('TIME')
  -- Entries begin with eight bytes of due time: what begins with the next microsecond is not due yet.
  last = '(' .. struct.pack('>I8', time[1] * 1000000 + time[2] + 1)
end
local lists = {}
for at, key in ipairs(KEYS) do
  lists[at] = redis.call('ZRANGEBYLEX', key, ARGV[1], last, 'LIMIT', 0, ARGV[3])
end
return lists
