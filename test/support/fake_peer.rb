# frozen_string_literal: true

require "json"

# A peer that does no work, see bench/README.md, and misbehaves as its first argument names. It reports its other arguments as its
# version.
how, *arguments = ARGV
messages = %w[--producers --messages].map { |name| arguments[arguments.index(name) + 1].to_i }.inject(:*)
warn "here is why: #{how}"

say = lambda do |line|
  puts line
  $stdout.flush
end

case how
when "has no such workload" then exit 64
when "dies" then exit 3
when "is silent" then sleep
when "has closed its stdin" then $stdin.close
when "says rubbish" then say.call("hello")
when "says a number" then say.call("1")
when "is not ready" then say.call("{}")
end
say.call(JSON.generate(ready: arguments.join(" ")))
while !$stdin.closed? && $stdin.gets
  exit 3 if how == "dies in a round"
  Process.kill(:KILL, Process.pid) if how == "is killed in a round"
  sleep if how == "is slow"
  say.call(JSON.generate(seconds: 0.5, delivered: how == "loses one" ? messages - 1 : messages, failed: 0))
end
exit 3 if how == "ends badly"
sleep if how == "does not end"
