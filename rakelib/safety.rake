# frozen_string_literal: true

namespace :test do
  desc "Takes each protection out: its test must fail. rake test:mutations [ONLY='part of a name'] [CHANGED_SINCE=main]"
  task mutations: :compile do
    changed = ENV["CHANGED_SINCE"] ? ["--changed-since", ENV["CHANGED_SINCE"]] : []
    ruby "test/proofs/mutations.rb", *changed, *ENV["ONLY"]
  end
end
