-- A small JSON POST with a fresh key each time, with the same key, or without one; or with a fresh key and a body of its own:
--   wrk -s wrk.lua URL -- fresh PREFIX | same PREFIX | none PREFIX | distinct PREFIX
-- and one line at the end that says what came of it.

local threads = 0

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(args)
  keys, prefix, sent = args[1], args[2] .. "-" .. number .. "-", 0
  fields = { ["Content-Type"] = "application/json" }
  body = '{"account":"acc_1","amount":1200,"currency":"EUR"}'
  if keys == "same" then fields["Idempotency-Key"] = args[2] end
  prepared = wrk.format("POST", "/charges", fields, body)
end

function request()
  if keys ~= "fresh" and keys ~= "distinct" then return prepared end
  sent = sent + 1
  fields["Idempotency-Key"] = prefix .. sent
  if keys == "distinct" then body = '{"account":"' .. prefix .. sent .. '","amount":1200,"currency":"EUR"}' end
  return wrk.format("POST", "/charges", fields, body)
end

function done(summary, latency)
  local e = summary.errors
  local failed = e.connect + e.read + e.write + e.status + e.timeout
  local line = string.format("RESULT %d %d %d", summary.requests, summary.duration, failed)
  for _, quantile in ipairs({ 1, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99 }) do
    line = line .. " " .. latency:percentile(quantile)
  end
  print(line)
end
