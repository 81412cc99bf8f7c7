-- For wrk: counts the answers that are not 200 with a body of SIZE bytes, and prints a line at the end:
-- answers=N wrong=N errors=N
local size = tonumber(os.getenv("SIZE"))
local threads = {}
wrong = 0

function setup(thread)
  table.insert(threads, thread)
end

function response(status, _, body)
  if status ~= 200 or #body ~= size then
    wrong = wrong + 1
  end
end

function done(summary)
  local all = 0
  for _, thread in ipairs(threads) do
    all = all + (thread:get("wrong") or 0)
  end
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  print(string.format("answers=%d wrong=%d errors=%d", summary.requests, all, failed))
end
