# frozen_string_literal: true

# What proves rather than tests: it takes hours, finds what a test finds once in a thousand runs, and is run before a release.
# The proofs are rake tasks; test/proofs/*_test.rb are short forms of them. test/support/proofs.rb names them, and says which of
# them a changed file concerns. bin/test --all runs the short forms.

desc "What proves rather than tests, one after the other: rake proofs [ONLY=asan,hostile_broker] [CHANGED_SINCE=main]"
task proofs: :compile do
  require_relative "../test/support/proofs"

  $stdout.sync = true
  ref = ENV.fetch("CHANGED_SINCE", nil) # short_proofs and mutations read it, too
  names = ref ? Proofs.tasks(ChangedPaths.since(ref)) : Proofs::TASKS
  proofs = Proofs.new(names.to_h { |name| [name, [RbConfig.ruby, "-S", "rake", "test:#{name}"]] })
  only = ENV.delete("ONLY").to_s.split(",") # what is left of it would choose within a proof
  exit 1 unless proofs.run(only)
end

namespace :test do
  desc "The short forms of the proofs, test/proofs/*_test.rb: rake test:short_proofs [CHANGED_SINCE=main: those it concerns]"
  task short_proofs: :compile do
    require_relative "../test/support/proofs"

    ref = ENV.fetch("CHANGED_SINCE", nil)
    files = ref ? Proofs.short_forms(ChangedPaths.since(ref)) : Dir["test/proofs/*_test.rb"]
    if files.empty? then puts "no short form of a proof concerns the changes since #{ref}"
    else
      ruby "test/run.rb", *files
    end
  end
end
