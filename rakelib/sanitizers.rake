# frozen_string_literal: true

# See docs/evidence/safety.md, "Sanitizers". Their short forms are in core_test.rb, message_pack_engine_test.rb and
# allocations_test.rb of test/proofs.

namespace :test do
  desc "The core without Ruby under ThreadSanitizer: rake test:tsan [SECONDS=20]"
  task(:tsan) { ruby "test/proofs/native.rb", "thread", ENV.fetch("SECONDS", "20") }

  desc "The core without Ruby under UndefinedBehaviorSanitizer: rake test:ubsan [SECONDS=20]"
  task(:ubsan) { ruby "test/proofs/native.rb", "undefined", ENV.fetch("SECONDS", "20") }

  desc "The engines of MessagePack without Ruby under both: rake test:msgpack_engine [SECONDS=20]"
  task(:msgpack_engine) { ruby "test/proofs/message_pack_engine.rb", ENV.fetch("SECONDS", "20") }

  desc "Fuzzes the engines of MessagePack, and keeps what is worth it in test/message_pack/corpus: rake test:fuzz [SECONDS=600]"
  task(:fuzz) { ruby "test/proofs/message_pack_fuzz.rb", ENV.fetch("SECONDS", "600") }

  desc "The test files, one after the other, with the extension under AddressSanitizer: rake test:asan [FILES=test/a_test.rb,...]"
  task(:asan) { ruby "test/proofs/instrumented.rb", "asan", *ENV["FILES"]&.split(",") }

  desc "A part of the test files under valgrind: rake test:valgrind [FILES=test/a_test.rb,...]"
  task(:valgrind) { ruby "test/proofs/instrumented.rb", "valgrind", *ENV["FILES"]&.split(",") }

  desc "Every error path 10,000 times, counting what librdkafka makes and destroys: rake test:allocations [LOOPS=10000]"
  task(allocations: :compile) { ruby "test/proofs/allocations.rb", ENV.fetch("LOOPS", "10000"), *ENV["ONLY"] }
end
