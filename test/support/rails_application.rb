# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require "tmpdir"
require_relative "limited"

# A small Rails application in a temporary folder. Its files are those that every application has, those given, and a model, a
# controller and a class for the rake task. Database: SQLite.
class RailsApplication
  # A program of the application: a server, a worker, a rake task.
  class Program
    attr_reader :pid

    def initialize(environment, command, log, folder)
      @log = log
      @pid = spawn(environment, *command, chdir: folder, out: log, err: %i[child out], rlimit_core: 0)
      @process = Process.detach(@pid)
    end

    # @return [String] what it wrote so far
    def output = File.read(@log)

    def running? = @process.alive?

    def signal(name) = Process.kill(name, pid)

    # @return [Process::Status]
    def wait(seconds = 40)
      trouble = Limited.wait(@process, seconds)
      raise "#{trouble}\n#{output}" if trouble

      @process.value
    end

    # For a test that failed: nothing is left running.
    def kill
      return unless running?

      # The workers of a server end when their master has gone. It ends them if it can.
      signal(:TERM)
      @process.join(5) or signal(:KILL)
      @process.join
    rescue Errno::ESRCH
      nil # it has just ended
    end
  end

  LIBRARY = File.expand_path("../../lib", __dir__)

  # What every application has, in its shortest form.
  SKELETON = {
    "config/boot.rb" => %(require "logger"\nrequire "pathname"\n), # which Bundler loads elsewhere
    "config/application.rb" => <<~RUBY,
      require_relative "boot"
      require "rails"
      require "active_record/railtie"
      require "action_controller/railtie"
      require "rails/test_unit/railtie"
      require "sidekiq" if Gem::Specification.find_all_by_name("sidekiq").any?
      require "penstock"

      class Shop < Rails::Application
        config.root = File.expand_path("..", __dir__)
        config.load_defaults Rails::VERSION::STRING.to_f
        config.eager_load = Rails.env.production?
        config.cache_classes = Rails.env.production?
        config.secret_key_base = "x" * 64
        config.hosts.clear
        config.log_tags = [->(_request) { "tagged" }]
        config.active_record.maintain_test_schema = false
        config.active_support.deprecation = :raise
      end
    RUBY
    "config/environment.rb" => <<~RUBY,
      require_relative "application"
      Rails.application.initialize!
    RUBY
    "config/database.yml" => %w[development production test].map { |name| <<~YAML }.join,
      #{name}: { adapter: sqlite3, database: database.sqlite3, timeout: 10000 }
    YAML
    "config/routes.rb" => <<~RUBY,
      Rails.application.routes.draw { resources :orders, only: :create }
    RUBY
    "config.ru" => <<~RUBY,
      require_relative "config/environment"
      run Rails.application
    RUBY
    "Rakefile" => <<~RUBY,
      require_relative "config/application"
      Rails.application.load_tasks
    RUBY
    "bin/rails" => <<~RUBY,
      APP_PATH = File.expand_path("../config/application", __dir__)
      require_relative "../config/boot"
      require "rails/commands"
    RUBY
    "app/controllers/orders_controller.rb" => <<~RUBY
      class OrdersController < ActionController::API
        def create
          render plain: "\#{Process.pid} \#{Order.create!(item: params[:item]).id}", status: :created
        end
      end
    RUBY
  }.freeze

  attr_reader :folder

  # @param files [Hash{String => String}] further files, or others in place of those above
  def initialize(files, **environment)
    @folder = Dir.mktmpdir("penstock-rails")
    @environment = { "RUBYLIB" => LIBRARY, "RUBYOPT" => nil, "BUNDLE_GEMFILE" => nil, "MT_NO_PLUGINS" => nil,
                     "RAILS_ENV" => "production", **environment.transform_keys(&:to_s) }
    @programs = []
    %w[log tmp].each { |name| Dir.mkdir(File.join(folder, name)) }
    SKELETON.merge(files).each { |path, text| write(path, text) }
    execute("CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, item VARCHAR)")
  end

  def write(path, text)
    FileUtils.mkdir_p(File.dirname(File.join(folder, path)))
    File.write(File.join(folder, path), text)
  end

  # @return [String] the lines of Rails' log
  def log(name = "production") = File.read(File.join(folder, "log/#{name}.log"))

  # @return [String] what all programs wrote, for a test that fails
  def outputs = Dir[File.join(folder, "log/*.log")].sort.map { |file| "#{File.basename(file)}:\n#{File.read(file)}" }.join("\n")

  # @return [Array<Array>] rows
  def execute(statement)
    database = SQLite3::Database.new(File.join(folder, "database.sqlite3"))
    database.execute(statement)
  ensure
    database&.close
  end

  # Starts a Ruby program.
  # @return [Program]
  def start(*arguments, **environment)
    log = File.join(folder, "log/program-#{@programs.size}.log")
    @programs << Program.new(@environment.merge(environment.transform_keys(&:to_s)), [RbConfig.ruby, *arguments], log, folder)
    @programs.last
  end

  # Runs a Ruby program to its end.
  # @return [Array(String, Process::Status)] its output and status
  def run(*arguments, **environment)
    program = start(*arguments, **environment)
    status = program.wait
    [program.output, status]
  end

  def close
    @programs.each(&:kill)
    FileUtils.remove_entry(folder)
  end
end
