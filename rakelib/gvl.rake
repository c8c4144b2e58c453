# frozen_string_literal: true

namespace :test do
  desc "What calls that wait leave of other threads' time: rake test:gvl [SECONDS=2] [ONLY=expression]"
  task gvl: :compile do
    ruby "-w", "-Ilib", "test/proofs/gvl.rb"
  end
end
