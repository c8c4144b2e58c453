# frozen_string_literal: true

namespace :test do
  desc "Every attack of a broker that lies, then random ones: rake test:hostile_broker [SECONDS=600] [SEED=N [ROUND=N]]"
  task hostile_broker: :compile do
    chosen = %w[SEED ROUND].flat_map { |name| ENV.key?(name) ? ["--#{name.downcase}", ENV.fetch(name)] : [] }
    chosen << "--catalogue" unless ENV.key?("ROUND")
    ruby "-w", "-Ilib", "test/proofs/hostile_broker.rb", ENV.fetch("SECONDS", "600"), *chosen
  end
end
