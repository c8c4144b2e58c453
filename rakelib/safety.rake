# frozen_string_literal: true

namespace :test do
  desc "Takes each protection out, and looks whether its test fails: rake test:mutations [ONLY='part of a name']"
  task mutations: :compile do
    ruby "test/proofs/mutations.rb", *ENV["ONLY"]
  end
end
