# frozen_string_literal: true

# Chooses the part of the proofs that a CI run does, so that the runs of successive commits do all of them.
module Rotation
  ROOT = File.expand_path("../..", __dir__)
  PARTS = 3

  # @return [Integer] the same for every run on a commit; the commit's time, since a shallow clone cannot count commits
  def self.number = Integer(ENV.fetch("PENSTOCK_ROTATION") { IO.popen(%w[git log -1 --format=%ct], chdir: ROOT, &:read) })

  # @return [Array<String>] the test files of test/proofs whose turn it is
  def self.files(number = self.number)
    files = Dir.glob("test/proofs/*_test.rb", base: ROOT).sort
    files.select.with_index { |_, i| i % PARTS == number % PARTS }
  end
end
