# frozen_string_literal: true

namespace :docs do
  desc "Write the tables of docs/configuration.md from the declarations of the settings"
  task(configuration: :compile) { ruby "-Ilib", "-Itest", "test/support/configuration_guide.rb" }
end
