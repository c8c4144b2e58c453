# frozen_string_literal: true

# What docs/evidence/safety.md tells of: a command for each part of it, each ending in a line with its figure.

namespace :test do
  desc "Takes each protection out, and looks whether its test fails: rake test:mutations [ONLY='part of a name']"
  task mutations: :compile do
    ruby "test/mutations.rb", *ENV["ONLY"]
  end
end
