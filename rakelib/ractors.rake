# frozen_string_literal: true

namespace :test do
  desc "8 Ractors on one producer, with collections, compaction, disconnects and fatal errors: rake test:ractors [SIZE=10000]"
  task ractors: :compile do
    sh RbConfig.ruby, "-w", "-Ilib", "test/proofs/support/ractor_storm.rb", "8", ENV.fetch("SIZE", "10000")
  end
end
