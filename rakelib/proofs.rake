# frozen_string_literal: true

# What proves rather than tests: it takes hours, finds what a test finds once in a thousand runs, and is run before a release.
# docs/evidence/safety.md says what each looks for. The proofs are rake tasks, named here; test/proofs/*_test.rb are short
# forms of them. CI runs a part of the short forms, another one for each commit.
PROOFS = %w[
  short_proofs mutations fuzz msgpack_engine asan tsan ubsan valgrind message_pack_storm message_pack_rounds
  message_pack_differential ractors fork_and_exit overload allocations gc gvl ffi hostile_broker
  admin_loops consumer_storm consumer_closing consumer_backlog exactly_once_storm
].freeze

desc "Everything that proves rather than tests, one after the other: rake proofs [ONLY=asan,hostile_broker]"
task proofs: :compile do
  require_relative "../test/support/proofs"

  $stdout.sync = true
  proofs = Proofs.new(PROOFS.to_h { |name| [name, [RbConfig.ruby, "-S", "rake", "test:#{name}"]] })
  only = ENV.delete("ONLY").to_s.split(",") # what is left of it would choose within a proof
  exit 1 unless proofs.run(only)
end

namespace :test do
  desc "The short forms of the proofs, test/proofs/*_test.rb: rake test:short_proofs [ROTATING=yes: the part whose turn it is]"
  task short_proofs: :compile do
    require_relative "../test/support/rotation"

    files = ENV["ROTATING"] ? Rotation.files : Dir["test/proofs/*_test.rb"]
    ruby "test/run.rb", *files
  end
end
