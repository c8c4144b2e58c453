# frozen_string_literal: true

namespace :docs do
  desc "Write the tables of docs/configuration.md from the declarations of the settings"
  task(configuration: :compile) { ruby "-Ilib", "-Itest", "test/support/configuration_guide.rb" }
end

namespace :test do
  desc "Compares the calls of these tests with sig/: rake test:signatures [FILES=test/consumer/batch_test.rb]"
  task signatures: :compile do
    names = %w[
      producer/message consumer/message_new instrumentation/tags consumer/batch producer/delivery_handle producer/variant
      instrumentation/events instrumentation/monitor producer/connection_pool testing/embedded_cluster testing/clients_buffered
      config/secret consumer/rewind consumer/mark consumer/pause consumer/offsets consumer/events instrumentation/listeners_logger
      instrumentation/listeners_statsd instrumentation/listeners_prometheus message_pack/buffer
    ]
    files = ENV["FILES"]&.split || names.map { |name| "test/#{name}_test.rb" }
    failed = files.reject { |file| sh(RbConfig.ruby, "-Ilib", "-Itest", "-rsupport/signed", file) { |passed, _| passed } }
    abort "Their calls differ from sig/, or they failed: #{failed.join(", ")}" if failed.any?
  end

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
