# frozen_string_literal: true

require "penstock"
require_relative "../support/hostile_broker"
require_relative "../support/hostile_broker/campaign"

# Brokers that send random malformed answers, for SECONDS: see docs/security.md, "A broker that lies", and rake
# test:hostile_broker.
#
#   ruby test/proofs/hostile_broker.rb [SECONDS] [--seed N] [--round N] [--catalogue]
#
# --round runs that round of that seed alone. --catalogue first runs every attack of the catalogue.
arguments = ARGV.dup
value = lambda do |name|
  place = arguments.index(name)
  place && Integer(arguments.slice!(place, 2).last)
end
seed = value.call("--seed") || Random.new_seed % (2**32)
round = value.call("--round")
catalogue = arguments.delete("--catalogue")
seconds = Integer(arguments.shift || "600")

$stdout.sync = true
puts "hostile broker: seed #{seed}"
campaign = HostileBroker::Campaign.new(seed)
round ? campaign.one(round) : campaign.run(seconds, catalogue: !catalogue.nil?)
puts campaign
exit campaign.findings.zero?
