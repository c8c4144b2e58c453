# frozen_string_literal: true

namespace :test do
  desc "Each call of an admin client 10,000 times: rake test:admin_loops [ROUNDS=100] [ONLY=lag]"
  task admin_loops: :compile do
    ruby "-Ilib", "test/proofs/admin_loops.rb"
  end

  desc "An admin client of 1,000 topics and 100 groups: rake test:admin_scale [TOPICS=100] [GROUPS=10]"
  task admin_scale: :compile do
    ruby "-Ilib", "test/proofs/admin_scale.rb"
  end
end
