-- force_release.lua: end a lease whoever has it, if it is still the one with that fence.
--
-- KEYS[1]  the index          KEYS[2]  the stop flags          KEYS[3]  the lease
-- KEYS[4]  the fence counter
-- ARGV[1]  name               ARGV[2]  fence; '0' for a lease that cannot be read
-- ARGV[3]  the very value that the caller could not read, or '' if its head is not one of ours
-- ARGV[4]  the channel for news of names
--
-- Returns 1 if it was ended, 0 if there is no such lease.
--
-- Word for its holder stays beside the stop flags, under the name and a newline (which no name
-- holds), for as long as the lease would have lived. The last word is there; earlier ones that still live have
-- the fence behind the newline.

-- include line.lua

local value = redis.pcall('GET', KEYS[3])
if not value then
  return 0
end
local fence, ttl
if type(value) == 'string' then
  fence, ttl = string.match(value, '^1 %S+ (%d+) %d+ (%d+) %d+ %a\n[^\n]*\n')
end
-- A record whose JSON is broken has a fence here, and none for those who read it.
if (fence or '0') ~= ARGV[2] and not (ARGV[2] == '0' and value == ARGV[3]) then
  return 0
end
redis.call('DEL', KEYS[3])
redis.call('ZREM', KEYS[1], ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if fence then
  local word = redis.call('HGET', KEYS[2], ARGV[1] .. '\n')
  local of, till = string.match(word or '', '^f (%d+) (%d+) ')
  if of and of ~= fence and tonumber(till) > now then
    redis.call('HSET', KEYS[2], ARGV[1] .. '\n' .. of, word)
  end
  redis.call('HSET', KEYS[2], ARGV[1] .. '\n', 'f ' .. fence .. ' ' .. stamp(now + ttl * 1000) .. ' 0 0 []')
  local flag = redis.call('HGET', KEYS[2], ARGV[1])
  if flag and string.sub(flag, 1, 1) == 'r' then
    redis.call('HDEL', KEYS[2], ARGV[1])
  end
end
pass_on(ARGV[1], KEYS[3], KEYS[1], KEYS[2], KEYS[4], '', now, 0, redis.call('HGET', KEYS[2], ARGV[1]))
redis.pcall('PUBLISH', ARGV[4], ARGV[1]) -- without the right to, the polls will do
return 1
