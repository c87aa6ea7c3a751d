-- adopt.lua: go on with leases that were handed over, with all of them or none.
--
-- KEYS[1]  the index          KEYS[2]  the stop flags
-- KEYS[3…] the leases
-- ARGV[1]  digest of the ticket        ARGV[2]  the new owner's token
-- ARGV[3]  TTL, ms                     ARGV[4]  heartbeat, ms
-- ARGV[5]  holder, one line of JSON    ARGV[6…] the name of each lease
--
-- Returns {now µs, then four for each: fence, µs of the grant, progress, flag or ''}
--      or false if one of them was not handed over with this ticket (and is not the new owner's yet).

local ticket, token, ttl = ARGV[1], ARGV[2], ARGV[3]
local values = {}
for i = 1, #KEYS - 2 do
  local value = redis.pcall('GET', KEYS[2 + i])
  if type(value) ~= 'string' then return false end
  local of, kind = string.match(value, '^1 (%S+) %d+ %d+ %d+ %d+ (%a)\n')
  if not (of == ticket and kind == 'o' or of == token and kind == 'h') then return false end
  values[i] = value
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local answer = {string.format('%.0f', now)}
for i, value in ipairs(values) do
  local key, name = KEYS[2 + i], ARGV[5 + i]
  local fence, since, progress = string.match(value, '^1 %S+ (%d+) (%d+) [^\n]*\n[^\n]*\n([^\n]*)')
  redis.call('PEXPIRE', key, ttl) -- before the write that needs memory
  redis.call('SET', key, '1 ' .. token .. ' ' .. fence .. ' ' .. since .. ' ' .. ttl .. ' ' .. ARGV[4] .. ' h\n'
             .. ARGV[5] .. '\n' .. progress, 'PX', ttl)
  redis.call('ZADD', KEYS[1], math.floor(now / 1000) + ttl, name)
  local flag = redis.call('HGET', KEYS[2], name)
  local kind, of, ends, words = string.match(flag or '', '^(%a) (%d+) (%d+) (.*)$')
  local said = ''
  if kind == 'r' and of == fence then -- a run's flag lives as long as its lease
    said = 'r ' .. of .. ' ' .. string.format('%.0f', now + ttl * 1000) .. ' ' .. words
    redis.call('HSET', KEYS[2], name, said)
  elseif kind == 'k' and (ends == '0' or tonumber(ends) > now) then
    said = flag
  end
  for _, told in ipairs({fence, since, progress, said}) do
    answer[#answer + 1] = told
  end
end
if redis.call('PTTL', KEYS[1]) < ttl + 1000 then
  redis.call('PEXPIRE', KEYS[1], ttl + 1000)
end
return answer
