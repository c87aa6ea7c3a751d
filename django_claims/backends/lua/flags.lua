-- flags.lua: the live stop flags and the word for the force-released; forgets those that have ended.
--
-- KEYS[1]  the stop flags      KEYS[2]  the index, if it is to be read next: a bounded number of
--                                       dead names is forgotten
-- ARGV[1]  the one name that is asked for, or none for all
-- ARGV[2]  '1' to remove it     ARGV[3]  then, the channel for news of names
--
-- Returns name, flag, name, flag, …

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local all = ARGV[1] and {ARGV[1], redis.call('HGET', KEYS[1], ARGV[1])} or redis.call('HGETALL', KEYS[1])
local answer = {}
if KEYS[2] then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', math.floor(now / 1000) - 1, 'LIMIT', 0, 1000)) do
    redis.call('ZREM', KEYS[2], name)
  end
end
for i = 1, #all, 2 do
  if all[i + 1] then
    local ends = string.match(all[i + 1], '^%a %d+ (%d+) ')
    local live = ends and (ends == '0' or tonumber(ends) > now)
    if live then
      answer[#answer + 1] = all[i]
      answer[#answer + 1] = all[i + 1]
    end
    if not live or ARGV[2] == '1' then
      redis.call('HDEL', KEYS[1], all[i])
    end
  end
end
if ARGV[2] == '1' and #answer > 0 then
  redis.pcall('PUBLISH', ARGV[3], ARGV[1]) -- without the right to, the polls will do
end
return answer
