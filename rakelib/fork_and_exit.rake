# frozen_string_literal: true

namespace :test do
  desc "Programs that end, and children, in each way, again and again: rake test:fork_and_exit [RUNS=500] [ONLY=expression]"
  task fork_and_exit: :compile do
    ruby "-w", "-Ilib", "-Itest", "test/proofs/fork_and_exit.rb"
  end

  desc "More than a client can take, or anybody hears: rake test:overload [PART=queue,payloads,handles,idle,spin,names] [MINUTES]"
  task overload: :compile do
    ruby "-w", "-Ilib", "-Itest", "test/proofs/overload.rb"
  end
end
