# frozen_string_literal: true

require_relative "support/room_checks"
require_relative "support/static_checks"

# Static checks of ext/penstock and lib. Prints a line for each check with findings, and a summary.
root = File.expand_path("..", __dir__)
libraries = %w[penstock message_pack].map { |name| File.join(root, "lib/penstock/#{name}.#{RbConfig::CONFIG["DLEXT"]}") }
checks = StaticChecks.new(File.join(root, "ext/penstock"), *libraries)
findings = checks.call.merge(RoomChecks.new(File.join(root, "lib")).call)
findings.each { |name, lines| lines.each { |line| puts "#{name}: #{line}" } }
puts "static checks: #{findings.values.sum(&:size)} findings of #{findings.size} checks in #{checks.sources.size} files " \
     "(#{checks.notes.join(", ")})"
exit findings.values.all?(&:empty?)
