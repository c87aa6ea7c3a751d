-- set_flag.lua: ask the run of a name to stop, or keep the name stopped.
--
-- KEYS[1]  the stop flags     KEYS[2]  the lease
-- ARGV[1]  name               ARGV[2]  '1' to keep
-- ARGV[3]  fence to aim at, or ''      ARGV[4]  ms to keep it, or '0'
-- ARGV[5]  reason and by, one line of JSON
-- ARGV[6]  the channel for news of names
--
-- Returns the flag, or false if there is no such run.
--
-- A flag: "kind fence expires_us requested_us seen_us words", kind r (of a run), k (kept) or f (forced).

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local us = string.format('%.0f', now)
local flag
if ARGV[2] == '1' then
  local ends = '0'
  if ARGV[4] ~= '0' then ends = string.format('%.0f', now + ARGV[4] * 1000) end
  flag = table.concat({'k', '0', ends, us, '0', ARGV[5]}, ' ')
else
  local value = redis.pcall('GET', KEYS[2])
  if type(value) ~= 'string' then return false end
  local fence, kind = string.match(value, '^1 %S+ (%d+) %d+ %d+ %d+ (%a)\n')
  if not fence or kind == 'r' or (ARGV[3] ~= '' and ARGV[3] ~= fence) then return false end
  local there = redis.call('HGET', KEYS[1], ARGV[1])
  if there then
    local what, of, ends = string.match(there, '^(%a) (%d+) (%d+) ')
    if (what == 'r' and of == fence) or (what == 'k' and (ends == '0' or tonumber(ends) > now)) then
      return there -- asked before; the first one stands
    end
  end
  local ends = string.format('%.0f', now + redis.call('PTTL', KEYS[2]) * 1000)
  flag = table.concat({'r', fence, ends, us, '0', ARGV[5]}, ' ')
end
redis.call('HSET', KEYS[1], ARGV[1], flag)
redis.pcall('PUBLISH', ARGV[6], ARGV[1]) -- without the right to, the polls will do
return flag
