-- hand_over.lua: put a ticket in the owner's place, on all of the leases or on none.
--
-- KEYS[1]  the index          KEYS[2]  the stop flags
-- KEYS[3…] the leases
-- ARGV[1]  owner token        ARGV[2]  digest of the ticket
-- ARGV[3]  ms that it is good for
-- ARGV[4…] the name of each lease
--
-- Returns 1, or 0 if one of them is neither the owner's nor handed over with this ticket.

local token, ticket, valid = ARGV[1], ARGV[2], ARGV[3]
local values = {}
for i = 1, #KEYS - 2 do
  local value = redis.pcall('GET', KEYS[2 + i])
  if type(value) ~= 'string' then return 0 end
  local of, kind = string.match(value, '^1 (%S+) %d+ %d+ %d+ %d+ (%a)\n')
  if not (of == token and (kind == 'h' or kind == 'g') or of == ticket and kind == 'o') then return 0 end
  values[i] = value
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i, value in ipairs(values) do
  local key, name = KEYS[2 + i], ARGV[3 + i]
  local run, heartbeat, rest = string.match(value, '^1 %S+ (%d+ %d+) %d+ (%d+) %a(\n.*)$')
  redis.call('PEXPIRE', key, valid) -- before the write that needs memory
  redis.call('SET', key, '1 ' .. ticket .. ' ' .. run .. ' ' .. valid .. ' ' .. heartbeat .. ' o' .. rest, 'PX', valid)
  redis.call('ZADD', KEYS[1], math.floor(now / 1000) + valid, name)
  local flag = redis.call('HGET', KEYS[2], name)
  local of, words = string.match(flag or '', '^r (%d+) %d+ (.*)$')
  if of and string.match(run, '^%d+') == of then -- a run's flag lives as long as its lease
    redis.call('HSET', KEYS[2], name, 'r ' .. of .. ' ' .. string.format('%.0f', now + valid * 1000) .. ' ' .. words)
  end
end
if redis.call('PTTL', KEYS[1]) < valid + 1000 then
  redis.call('PEXPIRE', KEYS[1], valid + 1000)
end
return 1
