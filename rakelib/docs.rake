# frozen_string_literal: true

namespace :docs do
  desc "Write the tables of docs/configuration.md from the declarations of the settings"
  task(configuration: :compile) { ruby "-Ilib", "-Itest", "test/support/configuration_guide.rb" }
end

namespace :test do
  desc "The tests of each defect and behaviour of docs/evidence: rake test:tags [ONLY='defect C7']"
  task :tags do
    rows = Dir.glob("test/**/*_test.rb").flat_map do |file|
      File.read(file).scan(/((?:^ *#.*\n)+)^.*?\b(test_(?:\w|\#\{[^}]*\})+)/).flat_map do |comments, test|
        comments.scan(/^ *# (?:(defect) (.+)|(behaviour: .+))/).flat_map do |defect, numbers, behaviour|
          (defect ? numbers.split(", ").map { |number| "defect #{number}" } : [behaviour]).map { |tag| [tag, file, test] }
        end
      end
    end
    only = ENV.fetch("ONLY", "")
    rows.select { |tag, *| tag == only || (tag.include?(only) && !only.start_with?("defect ")) }
        .sort.each { |row| puts row.join(" | ") }
  end
end
