# frozen_string_literal: true

require_relative "lib/penstock/version"

Gem::Specification.new do |spec|
  spec.name = "penstock"
  spec.version = Penstock::VERSION
  spec.summary = "Kafka for Ruby with a native core: one poller serves every producer of a process"
  spec.description = "A Kafka producer and consumer over librdkafka. One native thread resolves the deliveries of all " \
                     "producers, without the GVL and without a Ruby thread."
  spec.authors = ["The Penstock authors"]
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir["lib/**/*.rb", "ext/**/*.{c,h,rb}", "exe/*", "sig/**/*.rbs", "docs/**/*.{md,svg}", "examples/*.rb",
                   "{README,DESIGN,CHANGELOG,CONTRIBUTING,SECURITY}.md", "LICENSE"]
  spec.extensions = ["ext/penstock/extconf.rb", "ext/penstock/message_pack/extconf.rb"]
  spec.bindir = "exe"
  spec.executables = ["penstock"]
  spec.require_paths = ["lib"]
  spec.metadata["rubygems_mfa_required"] = "true"

  spec.add_development_dependency "minitest"
  spec.add_development_dependency "rake"
  spec.add_development_dependency "rake-compiler"
end
